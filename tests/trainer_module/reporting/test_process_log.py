"""Tests where the log messages of a training process go."""

import json
import os
import subprocess
import sys

import pytest

from tfx_distribute.trainer_module.reporting.progress import Progress

LOGS = """
import logging, logging.config, sys
from tfx_distribute.trainer_module.reporting import process_log
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


def test_messages_as_json_and_progress():
    progress = (
        "from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter; "
        "Reporter(None, 'worker-1').report(Progress('train', 3, metrics={'loss': float('nan')}))"
    )
    words = [sys.executable, "-c", LOGS.format(user_code=progress).replace("configure()", "configure('worker-1')")]
    environment = {**os.environ, "TFX_DISTRIBUTE_LOG_FORMAT": "json"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=environment)
    line, info = done.stdout.splitlines()
    assert line.startswith('{"phase"'), "the launcher looks for it"
    report = Progress.from_json(line)
    assert (report.step, report.task, str(report.metrics["loss"])) == (3, "worker-1", "nan")
    assert {"severity": "INFO", "message": "info", "task": "worker-1"}.items() <= json.loads(info).items()
    assert [json.loads(line)["severity"] for line in done.stderr.splitlines()[:2]] == ["WARNING", "ERROR"]
