"""Logs the messages of a training process, as text or as JSON."""

import json
import logging
import os
import sys
from datetime import datetime, timezone

# Environment variable: `json` for one JSON object per line, with the keys that Google
# Cloud and most log collectors know: `severity`, `message`, `time`. Source:
# https://cloud.google.com/logging/docs/structured-logging#special-payload-fields
FORMAT_VARIABLE = "TFX_DISTRIBUTE_LOG_FORMAT"

# Not from `logging.getLogger`: `logging.config.dictConfig` and `fileConfig` in a user's
# module disable all loggers that exist, and the reason of a failure would be lost.
LOGGER = logging.Logger("tfx_distribute", logging.INFO)


def configure(task: str = "") -> None:
    """Sends the messages of `LOGGER` to the process's standard streams.

    As text they have no prefix: launchers show them to the user, and add the name of
    the process. Warnings and errors go to standard error, other messages to standard
    output.
    """
    output = logging.StreamHandler(sys.stdout)
    output.addFilter(lambda record: record.levelno < logging.WARNING)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.WARNING)
    for handler in (output, errors):
        if os.environ.get(FORMAT_VARIABLE) == "json":
            handler.setFormatter(_JsonFormatter(task))
    LOGGER.handlers[:] = [output, errors]


class _JsonFormatter(logging.Formatter):
    def __init__(self, task: str):
        super().__init__()
        self._task = task

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        fields = {"severity": record.levelname, "message": super().format(record), "time": time, "task": self._task}
        return json.dumps(fields)
