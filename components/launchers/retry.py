"""Repeats requests to a service that does not answer for a while.

What the service runs continues meanwhile, so an outage of its API must not end a
training. The pauses between requests grow.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import NoAnswerError

MAX_GROWTH = 8  # of the pauses

T = TypeVar("T")


def call_with_retries(
    request: Callable[[], T],
    service: str,
    is_transient: Callable[[Exception], bool],
    timeout_seconds: float | None = None,
) -> T:
    """Sends a request, repeatedly after errors that are transient; returns the answer.

    Raises a NoAnswerError after `timeout_seconds` without an answer, by default
    `timeouts.ANSWER_SECONDS`.
    """
    seconds = timeouts.ANSWER_SECONDS if timeout_seconds is None else timeout_seconds
    deadline = time.monotonic() + seconds
    growth = 1
    while True:
        try:
            return request()
        except Exception as error:
            if not is_transient(error):
                raise
            if time.monotonic() > deadline:
                raise NoAnswerError(f"{service} did not answer for {seconds:g} s; the last error: {error}") from error
            if growth == 1:
                logging.warning("%s does not answer, trying again: %s", service, error)
            time.sleep(min(timeouts.RETRY_SECONDS * growth, max(0.0, deadline - time.monotonic())))
            growth = min(2 * growth, MAX_GROWTH)
