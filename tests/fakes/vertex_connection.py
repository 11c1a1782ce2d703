"""Connects the SDK, and `tfx-distribute doctor`, of this process to the stand-in."""

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import urlsplit

import requests
import vertex_grpc
from google.auth.credentials import AnonymousCredentials, Credentials
from google.oauth2 import credentials as oauth2_credentials

if TYPE_CHECKING:
    from vertex_api import VertexApi

WAIT_SECONDS = 0.05  # in place of the SDK's five between two polls


class Redirect(requests.adapters.HTTPAdapter):
    """Sends requests for Google's services to the stand-in instead."""

    def __init__(self, url: str):
        super().__init__()
        self._url = url

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Sends a request; its path begins with the name of the service."""
        address = urlsplit(str(request.url))
        query = f"?{address.query}" if address.query else ""
        request.url = f"{self._url}/{address.netloc}{address.path}{query}"
        return super().send(request, *arguments, **options)


def make_session(url: str, account: str = "") -> requests.Session:
    """Returns a session for Google's services that is connected to the stand-in."""
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", Redirect(url))
    if account:
        session.headers["Authorization"] = f"Bearer {account}"
    return session


@contextlib.contextmanager
def connected(api: "VertexApi", transport: str, account: str) -> Iterator[None]:
    """Connects this process, within the block.

    The SDK polls a job more often than it does, and asks for the project's number
    here; nothing else in it is changed.
    """
    from google.cloud import aiplatform, resourcemanager
    from google.cloud.aiplatform.utils import resource_manager_utils

    from tfx_distribute.pipelines.runners.vertex.doctor import rest

    config = aiplatform.initializer.global_config
    before = dict(vars(config))
    credentials: Credentials = oauth2_credentials.Credentials(account) if account else AnonymousCredentials()
    with contextlib.ExitStack() as stack:
        variables = {"STORAGE_EMULATOR_HOST": api.url, "no_proxy": "127.0.0.1"}
        stack.enter_context(mock.patch.dict(os.environ, variables))
        for module in (aiplatform.jobs, aiplatform.pipeline_jobs):
            stack.enter_context(mock.patch.object(module, "_JOB_WAIT_TIME", WAIT_SECONDS))
        projects = functools.partial(
            resourcemanager.ProjectsClient, transport="rest", client_options={"api_endpoint": api.url}
        )
        named = mock.Mock(wraps=resourcemanager, ProjectsClient=projects)
        stack.enter_context(mock.patch.object(resource_manager_utils, "resourcemanager", named))
        stack.enter_context(mock.patch.object(rest, "make_session", functools.partial(make_session, api.url, account)))
        if transport == "grpc":
            stack.enter_context(vertex_grpc.redirect(api.grpc_address, account))
        stack.callback(vars(config).update, before)
        aiplatform.init(
            project=api.project,
            location=api.location,
            api_endpoint=api.url,
            api_transport=transport,
            credentials=credentials,
        )
        yield
