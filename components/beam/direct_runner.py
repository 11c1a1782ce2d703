"""Runs Beam pipelines on this machine with workers that only this user can reach.

Beam's own `DirectRunner` first looks on the internet for a Go program that might run
the pipeline instead. With several processes, it also listens on every interface of the
machine, where anyone who connects can read this user's files. This runner does neither:
with one process, nothing listens; with several, Beam's services are on a Unix socket in
a folder of mode 0700.
"""

import concurrent.futures
import contextlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import grpc
from apache_beam import pipeline as pipeline_lib
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2_grpc, beam_provision_api_pb2
from apache_beam.runners import runner as runner_lib
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from apache_beam.runners.portability.local_job_service import BeamFnLoggingServicer
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.worker import data_plane
from apache_beam.utils import thread_pool_executor

from tfx_distribute.components import timeouts
from tfx_distribute.components.beam import worker
from tfx_distribute.trainer_module.errors import TfxDistributeError

_SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Beam's clients send a keepalive every 20 s; by default, gRPC treats that as abuse.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
]


_OWN_PROCESS = "tfx_distribute:process"  # takes the place of Beam's urn of a subprocess


class DirectRunner(fn_runner.FnApiRunner):
    """Runs a Beam pipeline on this machine, in this process or in several.

    Takes the same options as Beam's `DirectRunner`: `--direct_running_mode=in_memory`
    or `multi_processing`, and `--direct_num_workers`. To use it in a TFX pipeline, pass
    its path in `beam_pipeline_args`, and any name of an image:

        --runner=tfx_distribute.components.beam.direct_runner.DirectRunner
        --sdk_container_image=none

    Without an image, TFX makes a package of itself for workers, which takes seconds for
    each component.
    """

    _on_stage = staticmethod(lambda done, total: None)

    def run_pipeline(self, pipeline: pipeline_lib.Pipeline, options: PipelineOptions) -> fn_runner.RunnerResult:
        """Runs the pipeline to its end and passes its options to all workers."""
        encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
        provision_info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
        self._provision_info = fn_runner.ExtendedProvisionInfo(provision_info)
        return super().run_pipeline(pipeline, options)

    def run_stages(self, *arguments: Any) -> fn_runner.RunnerResult:
        """Runs the stages of a pipeline with this module's workers."""
        self._num_stages, self._stages_done = len(arguments[1]), set[str]()
        # Beam offers no other way to replace its workers.
        with mock.patch.object(fn_runner, "WorkerHandlerManager", _Workers):
            return super().run_stages(*arguments)

    def _execute_bundle(self, *arguments: Any) -> Any:
        result = super()._execute_bundle(*arguments)
        self._stages_done.add(arguments[1].stage.name)
        self._on_stage(len(self._stages_done), self._num_stages)
        return result


@contextlib.contextmanager
def as_default(on_stage: Callable[[int, int], None] = lambda done, total: None) -> Iterator[None]:
    """Makes this the default runner within the block.

    Pipelines that name Beam's `DirectRunner`, or no runner, use this one. `on_stage` is
    called whenever a stage has run: with their number so far, and that of all stages.
    """
    path = f"{DirectRunner.__module__}.{DirectRunner.__qualname__}"
    with (
        mock.patch.dict(runner_lib._RUNNER_MAP, {"directrunner": path}),
        mock.patch.object(DirectRunner, "_on_stage", staticmethod(on_stage)),
    ):
        yield


class WorkerError(TfxDistributeError, RuntimeError):
    """A worker process of Beam has ended before its work was done."""


class _Workers(worker_handlers.WorkerHandlerManager):
    """The worker processes of one Beam pipeline, and the services that they use."""

    _grpc_server: "_Services | None"

    def get_worker_handlers(self, environment_id: str | None, num_workers: int) -> list[worker_handlers.WorkerHandler]:
        """Returns `num_workers` workers for an environment, and starts missing ones."""
        environment = self._environments[environment_id or next(iter(self._environments))]
        if environment.urn == python_urns.SUBPROCESS_SDK:
            environment.urn = _OWN_PROCESS
        if environment.urn not in (_OWN_PROCESS, python_urns.EMBEDDED_PYTHON):
            raise ValueError(
                f"the direct runner cannot run steps in the environment {environment.urn}: Beam would listen on all "
                "interfaces of this machine for it; use direct_running_mode=in_memory or multi_processing, or another runner"
            )
        if environment.urn == _OWN_PROCESS and self._grpc_server is None:
            self._grpc_server = _Services(self, self.state_servicer)
        return super().get_worker_handlers(environment_id, num_workers)

    def close_all(self) -> None:
        """Stops all workers and services.

        Raises a WorkerError if a worker has died, since Beam's error may not say so.
        """
        # Beam lists a worker before it starts.
        processes = [worker for worker in self._workers_by_id.values() if hasattr(worker, "end")]
        # Without an exception, no worker has died. With one, this may be known later.
        ends = [process.end for process in processes]
        concurrent.futures.wait(ends if sys.exc_info()[0] else (), timeouts.BEAM_WATCH_SECONDS, "FIRST_COMPLETED")
        deaths = [process.describe_death() for process in processes if process.end.done()]
        for process in processes:
            process.begin_close()
        super().close_all()
        if deaths:
            raise WorkerError(deaths[0])


class _Services:
    """Beam's services for its workers, on one Unix socket: takes the place of Beam's.

    Services that serve files are left out: worker processes on this machine need none.
    """

    def __init__(self, workers: _Workers, state: worker_handlers.StateServicer):
        self.control_handler = worker_handlers.BeamFnControlServicer(workers)
        self.data_plane_handler = data_plane.BeamFnDataServicer(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS)
        # Not in the temporary folder: systems limit the paths of sockets to 100 bytes.
        self._folder = tempfile.mkdtemp(prefix="beam-", dir="/tmp")
        address = f"unix:{self._folder}/socket"
        self.control_port = self.data_port = self.state_port = self.logging_port = address
        self._server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=_SERVER_OPTIONS)
        beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self.control_handler, self._server)
        beam_fn_api_pb2_grpc.add_BeamFnDataServicer_to_server(self.data_plane_handler, self._server)
        beam_fn_api_pb2_grpc.add_BeamFnStateServicer_to_server(worker_handlers.GrpcStateServicer(state), self._server)
        beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(BeamFnLoggingServicer(), self._server)
        self._server.add_insecure_port(address)
        self._server.start()

    def close(self) -> None:
        self.control_handler.done()
        self._server.stop(timeouts.BEAM_STOP_SECONDS).wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@worker_handlers.WorkerHandler.register_environment(_OWN_PROCESS, bytes)
class _WorkerProcess(worker_handlers.GrpcWorkerHandler):
    def __init__(self, payload: bytes, *arguments: Any):
        super().__init__(*arguments)
        self._is_closing = False

    def port_from_worker(self, port: str) -> str:
        return port  # the address of the socket

    def start_worker(self) -> None:
        info = self.provision_info.provision_info
        info.control_endpoint.url = info.logging_endpoint.url = self._grpc_server.control_port
        self.end = worker.start(worker.make_environment(self.worker_id, info))
        self._watcher = threading.Thread(target=self._watch, name="beam-worker-watcher", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """Aborts all waits for the process once it dies; Beam would wait forever."""
        self.end.result()
        error = WorkerError(self.describe_death())
        # Any status counts: a pipeline's code may end the process with 0, too.
        while not self._is_closing:
            with contextlib.suppress(RuntimeError):  # a wait has begun or ended meanwhile
                self.control_conn.abort(error)
            time.sleep(timeouts.BEAM_WATCH_SECONDS)  # another wait may begin after this one

    def describe_death(self) -> str:
        """Says how the process has ended."""
        status = self.end.result()
        advice = ""
        if status == -signal.SIGKILL:
            advice = (
                ". The system kills processes when memory runs out: write fewer processes, such as beam: "
                "{direct_num_workers: 1}"
            )
        return f"{self.worker_id}, a process of Beam, ended with status {status}{advice}"

    def stop_worker(self) -> None:
        self._watcher.join(timeouts.BEAM_STOP_SECONDS)
        if self._watcher.is_alive():
            worker.server().signal(self.end, signal.SIGKILL)
            self._watcher.join()

    def begin_close(self) -> None:
        """Tells the process to end."""
        self._is_closing = True
        self.control_conn.close()

    def close(self) -> None:
        """Waits for the end of the process."""
        # Beam 2.77 raises what ended the connection. The pipeline has failed by then.
        with contextlib.suppress(grpc.RpcError):
            self.data_conn.close()
        self.stop_worker()
