"""Logs the messages of a training process, as text or as JSON."""

import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

# Environment variable: `json` for one JSON object per line, with the keys that Google
# Cloud and most log collectors know: `severity`, `message`, `time`. Source:
# https://cloud.google.com/logging/docs/structured-logging#special-payload-fields
FORMAT_VARIABLE = "TFX_DISTRIBUTE_LOG_FORMAT"

# Not from `logging.getLogger`: `logging.config.dictConfig` and `fileConfig` in a user's
# module disable all loggers that exist, and the reason of a failure would be lost.
LOGGER = logging.Logger("tfx_distribute", logging.INFO)


def configure(task: str = "") -> None:
    """Sends the messages of `LOGGER` to the process's standard streams.

    Messages are flushed at once and, as text, have no prefix: launchers show them to
    the user, and add the name of the process. Warnings and errors go to standard error,
    other messages to standard output. Messages in JSON have the name `task` of this
    process.
    """
    output = logging.StreamHandler(sys.stdout)
    output.addFilter(lambda record: record.levelno < logging.WARNING)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.WARNING)
    for handler in (output, errors):
        if is_json():
            handler.setFormatter(_JsonFormatter(task))
    LOGGER.handlers[:] = [output, errors]


def is_json() -> bool:
    """Returns True if this process logs JSON."""
    return os.environ.get(FORMAT_VARIABLE) == "json"


def as_json(fields: Mapping[str, Any], message: str, severity: str = "INFO") -> str:
    """Formats an event as one line of JSON.

    `fields` are details of the event and come first; None and empty values are left
    out. `severity` is `INFO`, `WARNING` or `ERROR`.
    """
    known = {name: _as_value(value) for name, value in fields.items() if value is not None and value not in ("", {})}
    time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return json.dumps({**known, "severity": severity, "message": message, "time": time})


def _as_value(value: Any) -> Any:
    """Returns a value that JSON has: infinite and NaN numbers as texts."""
    if isinstance(value, Mapping):
        return {name: _as_value(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("nan", "NaN").replace("inf", "Infinity")
    return value


class _JsonFormatter(logging.Formatter):
    def __init__(self, task: str):
        super().__init__()
        self._task = task

    def format(self, record: logging.LogRecord) -> str:
        return as_json({"task": self._task}, super().format(record), record.levelname)
