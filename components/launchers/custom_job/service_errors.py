"""Requests to Vertex AI: what their errors are, over gRPC and over REST."""

from collections.abc import Callable
from typing import TypeVar

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions

from tfx_distribute.components.launchers import retry

REQUEST_SECONDS = 60.0  # for one answer
CONSOLE = "https://console.cloud.google.com"

T = TypeVar("T")

UNAVAILABLE = (
    exceptions.ServerError,
    exceptions.RetryError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    auth_exceptions.TransportError,
)


def call_with_retries(request: Callable[[], T]) -> T:
    """Sends a request until there is an answer; see `patience.patiently`."""
    return retry.call_with_retries(
        request, "Vertex AI", lambda error: isinstance(error, (*UNAVAILABLE, exceptions.TooManyRequests))
    )
