"""Tests where the log messages of a training process go."""

import subprocess
import sys

LOGS = """
import logging, sys
from tfx_distribute.trainer_module.lifecycle import process_log
logging.basicConfig(stream=sys.stderr, format="root: %(message)s")  # of a user's module
process_log.configure()
process_log.configure()  # replaces the handlers of the first call
log = logging.getLogger("tfx_distribute.trainer_module.process")
log.debug("debug")
log.info("info")
log.warning("warning")
log.error("error")
logging.getLogger("user").warning("warning")
"""


def test_messages_are_written_once_without_a_prefix():
    done = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "info\n"
    assert done.stderr == "warning\nerror\nroot: warning\n"
