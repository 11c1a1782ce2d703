"""Configures logging in a training process."""

import logging
import sys

PACKAGE = "tfx_distribute"


def configure() -> None:
    """Sends this package's log messages to the process's standard streams.

    Messages are flushed at once and have no prefix: launchers show them to the user,
    and add the name of the process. Warnings and errors go to standard error, other
    messages to standard output. Other loggers, such as TensorFlow's and the root
    logger, are left to their owners.
    """
    output = logging.StreamHandler(sys.stdout)
    output.addFilter(lambda record: record.levelno < logging.WARNING)
    errors = logging.StreamHandler(sys.stderr)
    errors.setLevel(logging.WARNING)
    logger = logging.getLogger(PACKAGE)
    logger.handlers[:] = [output, errors]
    logger.setLevel(logging.INFO)
    logger.propagate = False  # or a handler of the root logger would print them again
