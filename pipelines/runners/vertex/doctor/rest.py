"""Sends requests to Google Cloud's REST APIs with a person's own credentials.

All requests of `tfx-distribute doctor` only read. Imports no TensorFlow and no SDK.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests

from tfx_distribute.trainer_module.errors import ConfigurationError

SECONDS = 20.0  # for one answer
UNREACHABLE = 0  # code of an answer that did not come
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@dataclass(frozen=True)
class Request:
    """A request that reads.

    Attributes:
      url: Address.
      body: JSON values to send with POST; None for GET.
    """

    url: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
      code: HTTP status; `UNREACHABLE` if there was no answer.
      document: The answer's JSON values.
    """

    code: int
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """True if the request succeeded."""
        return 200 <= self.code < 300

    @property
    def disabled_service(self) -> str:
        """The service that was asked, if it is not enabled; else empty."""
        error = self.document.get("error", {})
        for detail in error.get("details", ()) if isinstance(error, Mapping) else ():
            if detail.get("reason") == "SERVICE_DISABLED":
                return str(detail.get("metadata", {}).get("service", "the service"))
        return ""

    @property
    def message(self) -> str:
        """The error message of the service, in one line; empty if there is none."""
        error = self.document.get("error", {})
        return " ".join(str(error.get("message", "")).split()) if isinstance(error, Mapping) else str(error)


def make_session() -> requests.Session:
    """Returns a session with the credentials of this machine's user.

    Raises:
      ConfigurationError: There are none.
    """
    import google.auth
    from google.auth import exceptions
    from google.auth.transport.requests import AuthorizedSession

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except exceptions.DefaultCredentialsError as error:
        raise ConfigurationError(
            f"there are no credentials for Google Cloud ({error}); run `gcloud auth application-default login`, or have "
            "GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account"
        ) from error
    session: requests.Session = AuthorizedSession(credentials)
    return session


def send(session: requests.Session, request: Request) -> Answer:
    """Sends a request; a service that does not answer has the code `UNREACHABLE`."""
    from google.auth import exceptions

    method = "GET" if request.body is None else "POST"
    try:
        response = session.request(method, request.url, json=request.body, timeout=SECONDS)
    except (requests.exceptions.RequestException, exceptions.GoogleAuthError) as error:
        return Answer(UNREACHABLE, {"error": {"message": str(error)}})
    try:
        document = response.json()
    except ValueError:
        document = {"error": {"message": response.text[:200]}}
    return Answer(response.status_code, document if isinstance(document, dict) else {})


def send_all(session: requests.Session, requests_to_send: list[Request]) -> list[Answer]:
    """Sends requests at the same time; returns their answers in the same order."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda request: send(session, request), requests_to_send))


def quoted(name: str) -> str:
    """Returns a name as one part of a path."""
    return quote(name, safe="")
