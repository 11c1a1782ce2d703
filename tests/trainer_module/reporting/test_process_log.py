"""Tests where the log messages of a training process go."""

import json
import math
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


def test_messages_and_progress_as_json():
    progress = (
        "from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter; "
        "Reporter(None, 'worker-1').report(Progress('train', 3, 9, metrics={'loss': float('nan')})); "
        "Reporter(None, 'worker-1').report(Progress('train', message='saved', learning_rate=float('nan')))"
    )
    words = [sys.executable, "-c", LOGS.format(user_code=progress).replace("configure()", "configure('worker-1')")]
    environment = {**os.environ, "TFX_DISTRIBUTE_LOG_FORMAT": "json"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=environment)
    report, saved, info = done.stdout.splitlines()
    assert report.startswith('{"phase"'), "the launcher looks for it"
    parsed = json.loads(report, parse_constant=pytest.fail)
    assert (parsed["severity"], parsed["message"]) == ("INFO", "train; training step 3 of 9; loss nan")
    assert (parsed["step"], parsed["task"], parsed["metrics"]) == (3, "worker-1", {"loss": "NaN"})
    assert math.isnan(Progress.from_json(report).metrics["loss"])
    assert Progress.from_json(report).message == "", "the launcher leaves out some of those without a message"
    assert (json.loads(saved)["message"], Progress.from_json(saved).message) == ("train; saved", "saved")
    assert math.isnan(Progress.from_json(saved).learning_rate)
    assert {"severity": "INFO", "message": "info", "task": "worker-1"}.items() <= json.loads(info).items()
    assert [json.loads(line)["severity"] for line in done.stderr.splitlines()[:2]] == ["WARNING", "ERROR"]
