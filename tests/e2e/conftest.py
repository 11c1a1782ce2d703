"""Defines fixtures of end-to-end tests."""

import os
import socket
import subprocess
from collections.abc import Iterator

import grpc
import pytest


@pytest.fixture
def prism() -> Iterator[str]:
    """Returns HOST:PORT of a Prism; skips the test where there is no program."""
    program = os.environ.get("PRISM")
    if not program:
        pytest.skip("PRISM names no program of Beam's portable runner")
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"localhost:{port}"
    process = subprocess.Popen(
        [program, f"-job_port={port}", "-serve_http=false"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with grpc.insecure_channel(endpoint) as channel:
            grpc.channel_ready_future(channel).result(30)
        yield endpoint
    finally:
        process.kill()
        process.wait()
