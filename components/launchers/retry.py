"""Requests to a service that may not answer for a while; what it runs goes on meanwhile."""

import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging

from tfx_distribute.trainer_module.errors import TrainingError

PATIENCE_SECONDS = 600.0
AGAIN_SECONDS = 3.0

T = TypeVar("T")


def call_with_retries(request: Callable[[], T], service: str, passes: Callable[[Exception], bool]) -> T:
    """Sends a request; again and again, where the service cannot be reached or cannot answer.

    Args:
      request: Sends it, once.
      service: What the service is called, for messages.
      passes: Whether another try may do better after an error.

    Raises:
      TrainingError: There was no answer for `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return request()
        except Exception as error:
            if not passes(error):
                raise
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"{service} did not answer for {PATIENCE_SECONDS:g} s; the last error: {error}"
                ) from error
            if not told:
                logging.warning("%s does not answer, trying again: %s", service, error)
                told = True
            time.sleep(AGAIN_SECONDS)
