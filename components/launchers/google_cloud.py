"""Requests to Google Cloud: patient ones."""

import time
from collections.abc import Callable
from typing import TypeVar

import requests
from absl import logging
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions

from tfx_distribute.trainer_module.errors import TrainingError

REQUEST_SECONDS = 60.0  # for one answer
PATIENCE_SECONDS = 600.0  # without an answer; what was started goes on meanwhile
AGAIN_SECONDS = 5.0
CONSOLE = "https://console.cloud.google.com"

T = TypeVar("T")

UNREACHABLE = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    auth_exceptions.TransportError,
)
_PASSING = (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError, *UNREACHABLE)


def patiently(request: Callable[[], T]) -> T:
    """Sends a request; again and again, where the service cannot be reached or cannot answer.

    Args:
      request: Sends it, once.

    Raises:
      TrainingError: There was no answer for `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return request()
        except _PASSING as error:
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"Vertex AI did not answer for {PATIENCE_SECONDS:g} s; the last error: {error}"
                ) from error
            if not told:
                logging.warning("Vertex AI does not answer, trying again: %s", error)
                told = True
            time.sleep(AGAIN_SECONDS)
