"""Sends requests to Vertex AI, and knows which of its errors pass.

Covers errors over gRPC and over REST. Also used by the runner of pipelines on Vertex
AI.
"""

from collections.abc import Callable
from typing import TypeVar

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions

from tfx_distribute.components.launchers import retry

REQUEST_SECONDS = 60.0  # for one answer
CONSOLE = "https://console.cloud.google.com"

T = TypeVar("T")

# The service cannot be reached, or cannot answer.
UNAVAILABLE = (
    exceptions.ServerError,
    exceptions.RetryError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    auth_exceptions.TransportError,
)
TRANSIENT = (*UNAVAILABLE, exceptions.TooManyRequests)
# A step gets its credentials from a server of its own machine, which may not answer,
# and new roles take minutes to reach every server. The job runs on.
TRANSIENT_WHILE_FOLLOWING = (
    *TRANSIENT,
    auth_exceptions.RefreshError,
    exceptions.Unauthorized,
    exceptions.Forbidden,
)


def find_act_as_remedy(message: str, sender: str) -> str:
    """Returns the remedy for the refusal of a service account, or "" for other errors.

    The service answers it as an invalid argument, even if the account does not exist.

    Args:
      message: The service's message.
      sender: Whoever sent the request, for a sentence.
    """
    if "permission to act as service_account" not in message:
        return ""
    return (
        f"; check that the account exists, and that {sender} may act as it (roles/iam.serviceAccountUser; `tfx-distribute "
        "manifests --target vertex PIPELINE` prints the commands)"
    )


def call_vertex_ai(
    request: Callable[[], T],
    transient: tuple[type[Exception], ...] = TRANSIENT,
    timeout_seconds: float | None = None,
) -> T:
    """Sends a request, repeatedly while Vertex AI does not answer.

    Args:
      request: Sends the request once.
      transient: Errors after which another request may succeed.
      timeout_seconds: Seconds without an answer after which it is given up; None for
        `retry.TIMEOUT_SECONDS`.

    Returns:
      The answer.

    Raises:
      NoAnswerError: There was no answer for that long.
      Exception: The first error that is not transient, as `request` raised it.
    """
    return retry.call_with_retries(request, "Vertex AI", lambda error: isinstance(error, transient), timeout_seconds)
