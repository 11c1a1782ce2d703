"""Defines fixtures of end-to-end tests."""

import os
import subprocess
from collections.abc import Iterator

import grpc
import pytest
from running import free_port


@pytest.fixture
def prism() -> Iterator[str]:
    """Returns HOST:PORT of a Prism; skips the test where there is no program."""
    program = os.environ.get("PRISM")
    if not program:
        pytest.skip("PRISM names no program of Beam's portable runner")
    port = free_port()
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
