"""Tests where the log messages of a training process go."""

import subprocess
import sys

import pytest

LOGS = """
import logging, logging.config, sys
from tfx_distribute.trainer_module.lifecycle import process_log
process_log.configure()
process_log.configure()  # replaces the handlers of the first call
{user_code}
log = process_log.LOGGER
log.debug("debug")
log.info("info")
log.warning("warning")
log.error("error")
logging.getLogger("user").warning("warning")
"""
BASIC = "logging.basicConfig(stream=sys.stderr, format='root: %(message)s')"
DICT = """logging.config.dictConfig({
    "version": 1,
    "formatters": {"plain": {"format": "root: %(message)s"}},
    "handlers": {"stream": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stream"]},
})"""


@pytest.mark.parametrize("user_code", [BASIC, DICT])
def test_messages_are_written_once_without_a_prefix(user_code):
    """Whichever way a user's module configures logging."""
    words = [sys.executable, "-c", LOGS.format(user_code=user_code)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "info\n"
    assert done.stderr == "warning\nerror\nroot: warning\n"
