"""Logs the messages of a training process."""

import logging
import sys

# Not from `logging.getLogger`: `logging.config.dictConfig` and `fileConfig` in a user's
# module disable all loggers that exist, and the reason of a failure would be lost.
LOGGER = logging.Logger("tfx_distribute", logging.INFO)


def configure() -> None:
    """Sends the messages of `LOGGER` to the process's standard streams.

    Messages are flushed at once and have no prefix: launchers show them to the user,
    and add the name of the process. Warnings and errors go to standard error, other
    messages to standard output.
    """
    output = logging.StreamHandler(sys.stdout)
    output.addFilter(lambda record: record.levelno < logging.WARNING)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.WARNING)
    LOGGER.handlers[:] = [output, errors]
