"""Runs Beam pipelines on job services: real gRPC servers of Beam's own, in Python."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import grpc
import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from running import free_port

from tfx_distribute.pipelines.spec.beam import Beam, make_pipeline_args
from tfx_distribute.trainer_module.errors import ConfigurationError

WORKER = Path(sys.executable).with_name("tfx-distribute-beam-worker")


@pytest.fixture
def endpoint() -> Iterator[str]:
    servicer = LocalJobServicer()
    yield f"localhost:{servicer.start_grpc_server(0)}"
    servicer.stop()


@contextlib.contextmanager
def worker_pool(*words: str, **variables: str) -> Iterator[dict[str, str]]:
    """Starts a worker pool of Beam; yields the setting that uses it."""
    port = free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}", *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (
        subprocess.Popen(command, env={**os.environ, "PATH": path, **variables}) as pool,
        grpc.insecure_channel(f"localhost:{port}") as channel,
    ):
        try:
            grpc.channel_ready_future(channel).result(60)
            yield {"environment_type": "EXTERNAL", "environment_config": f"localhost:{port}"}
        finally:
            pool.terminate()


@pytest.fixture(scope="module")
def pool() -> Iterator[dict[str, str]]:
    with worker_pool() as setting:
        yield setting


def run(endpoint: str, function=str, **setting: object) -> None:
    words = {"runner": "portable", "job_endpoint": endpoint, **setting}
    with beam.Pipeline(argv=make_pipeline_args(Beam(**words))) as pipeline:
        _ = pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(function)


def test_workers_in_processes(endpoint, tmp_path, monkeypatch):
    (tmp_path / "of_the_user.py").write_text(f"def touch(element):\n    open({str(tmp_path)!r} + f'/{{element}}', 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import of_the_user

    executable = f"--container_executable={WORKER}"
    with worker_pool(executable, PYTHONPATH=str(tmp_path)) as setting:
        run(endpoint, of_the_user.touch, **setting)
    assert {"1", "2"} <= {path.name for path in tmp_path.iterdir()}


def test_a_job_may_take_longer_than_an_answer(endpoint, pool):
    run(endpoint, lambda element: time.sleep(4), options={"job_server_timeout": 3}, **pool)


def test_workers_that_anybody_reaches_are_refused(endpoint):
    runner = "--runner=tfx_distribute.components.beam.portable_runner.PortableRunner"
    arguments = [runner, f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]
    with pytest.raises(ConfigurationError, match="LOOPBACK lets in whoever"), beam.Pipeline(argv=arguments) as pipeline:
        _ = pipeline | beam.Create([1])


def test_no_job_service(pool):
    """Nothing listens, or something never answers."""
    no_answer = "no job service of Beam has answered at {} within 2 s"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for endpoint in (f"localhost:{free_port()}", f"localhost:{silent.getsockname()[1]}"):
            with pytest.raises(ConfigurationError, match=no_answer.format(endpoint)):
                run(endpoint, options={"job_server_timeout": 2}, **pool)
