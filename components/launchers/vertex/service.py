"""Sends requests to Vertex AI, and explains its errors."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import aiplatform
from google.protobuf import json_format

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import NoRoomError
from tfx_distribute.trainer_module.errors import ConfigurationError

CONSOLE = "https://console.cloud.google.com/vertex-ai/locations"
UNAVAILABLE = (exceptions.ServerError, exceptions.RetryError, auth_exceptions.TransportError)
TRANSIENT = (*UNAVAILABLE, exceptions.TooManyRequests)

# Part of a refusal -> what to do about it.
_HINTS = {
    "permission to act as service_account": "check that the account exists, and give whoever sends the request the role "
    "roles/iam.serviceAccountUser on it",
    "Permission 'aiplatform.": "give whoever sends the request the role roles/aiplatform.user",
    "quota": "ask for a larger quota, or write fewer workers, another resources.Trainer.accelerator or another "
    "targets.vertex.region",
}

T = TypeVar("T")


def connect(client_class: Any, project: str | None, region: str | None) -> tuple[Any, str]:
    """Returns a client of the SDK, and the parent of its resources.

    The class is from `google.cloud.aiplatform.utils`. None stands for the project of
    the credentials, and for the SDK's default region.
    """
    with explaining_errors():
        aiplatform.init(project=project, location=region)
        config = aiplatform.initializer.global_config
        return config.create_client(client_class=client_class), f"projects/{config.project}/locations/{config.location}"


def parse(message_class: Any, document: Mapping[str, Any]) -> Any:
    """Returns JSON values as a message of the API.

    Raises:
      ConfigurationError: The installed SDK does not know all fields and values.
    """
    message = message_class()
    with explaining_errors():
        json_format.ParseDict(document, message_class.pb(message))
    return message


def call(request: Callable[[], T], transient: tuple[type[Exception], ...] = TRANSIENT, seconds: float | None = None) -> T:
    """Sends a request again after transient errors; see `retry.call_with_retries`."""
    return retry.call_with_retries(request, "Vertex AI", lambda error: isinstance(error, transient), seconds)


@contextlib.contextmanager
def explaining_errors() -> Iterator[None]:
    """Passes errors of the service on whole, with a hint where one is known.

    Raises:
      NoRoomError: A quota is used up.
      ConfigurationError: Vertex AI or its SDK refuses, or does not answer.
    """
    try:
        yield
    except exceptions.GoogleAPICallError as error:
        hint = next((f"; {hint}" for part, hint in _HINTS.items() if part in error.message), "")
        kind = NoRoomError if isinstance(error, exceptions.TooManyRequests) else ConfigurationError
        raise kind(f"Vertex AI refuses: {error.message}{hint}") from error
    except auth_exceptions.GoogleAuthError as error:
        # The SDK hides missing credentials behind a missing project.
        reason = " ".join(str(error.__cause__ or error).split())
        raise ConfigurationError(
            f"there are no credentials for Google Cloud ({reason}); run `gcloud auth application-default login`, or have "
            "GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account"
        ) from error
    except (ValueError, json_format.ParseError) as error:
        raise ConfigurationError(f"the SDK of Vertex AI refuses: {error}") from error
