"""Runs Beam pipelines on a job service, such as that of Prism, Flink or Spark.

Beam's own `PortableRunner` waits for minutes, or forever, for a job service that does
not answer and for workers that do not start. It applies its time limit for answers to
whole jobs of Prism. With workers in this process (`LOOPBACK`) it listens on every
interface, and runs what anybody sends. This runner does none of that.
"""

import contextlib
import copy
import hmac
import re
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    beam_runner_api_pb2,
)
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.runner import PipelineState
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.environments import ExternalEnvironment
from apache_beam.utils import thread_pool_executor

from tfx_distribute.components.beam import worker_check
from tfx_distribute.trainer_module.errors import ConfigurationError, TfxDistributeError, TrainingError

_STOP_SECONDS = 1.0
_CONNECT_SECONDS = 15
_TOKEN = "token"  # noqa: S105 (a name)
# As gRPC's servers of Beam: Beam's clients send pings that gRPC treats as abuse.
_SERVER_OPTIONS = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]

_checked: set[tuple[Any, ...]] = set()


class PortableRunner(portable_runner.PortableRunner):
    """Runs a Beam pipeline on the job service that `--job_endpoint` names.

    Takes the options of Beam's `PortableRunner`. The job service has 15 seconds to
    answer, and the first worker `--job_server_timeout`; the pipeline itself takes as
    long as it takes. To use it in a TFX pipeline, pass its path in
    `beam_pipeline_args`:

        --runner=tfx_distribute.components.beam.portable_runner.PortableRunner
    """

    def run_portable_pipeline(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> "_Result":
        """Submits a pipeline, after checking once that workers start and answer.

        Raises:
          ConfigurationError: The job service or the workers do not answer, or the
            workers lack this package.
        """
        _check_workers(options)
        return self._submit(pipeline, options)

    def _submit(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> "_Result":
        # Java's job services would look for a class of this name.
        options.view_as(StandardOptions).runner = None
        job_service = self.create_job_service(options)
        with contextlib.ExitStack() as on_error:
            cleanup = self.start_and_replace_loopback_environments(pipeline, options)
            for callback in cleanup:
                on_error.callback(callback)
            with _explaining(options):
                job = job_service.submit(self._optimize_pipeline(pipeline, options))
            on_error.pop_all()
        job_id, messages, states = job
        return _Result(options, job_service.job_service, job_id, messages, states, cleanup)

    def create_job_service(self, options: PipelineOptions) -> "_JobService":
        """Connects to the job service.

        Raises:
          ConfigurationError: It does not answer.
        """
        portable = options.view_as(PortableOptions)
        channel = grpc.insecure_channel(portable.job_endpoint)
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        seconds = min(_CONNECT_SECONDS, portable.job_server_timeout)
        with _explaining(options):
            try:
                grpc.channel_ready_future(channel).result(seconds)
            except grpc.FutureTimeoutError as error:
                raise ConfigurationError(
                    f"beam.job_endpoint: no job service has answered at {portable.job_endpoint} within {seconds} s; start "
                    "it, or write the HOST:PORT that this process reaches it at"
                ) from error
            # Beam repeats this request for minutes.
            stub.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=seconds)
        return _JobService(stub, options)

    @staticmethod
    def start_and_replace_loopback_environments(
        pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> list[Callable[[], object]]:
        """Starts a worker pool in this process for each environment that needs one.

        Returns:
          Functions that stop the pools.
        """
        cleanup: list[Callable[[], object]] = []
        for environment in pipeline.components.environments.values():
            if environment.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK:
                server, url, token = _start_pool()
                external = ExternalEnvironment(url, {_TOKEN: token}).to_runner_api(None)
                environment.urn, environment.payload = external.urn, external.payload
                cleanup.append(partial(server.stop, _STOP_SECONDS))
        return cleanup


class _JobService(portable_runner.JobServiceHandle):
    """A job service."""

    def stage(self, proto_pipeline: beam_runner_api_pb2.Pipeline, artifact_staging_endpoint: str, token: str) -> None:
        try:
            super().stage(proto_pipeline, artifact_staging_endpoint, token)
        except grpc.RpcError as error:
            raise ConfigurationError(
                f"beam.artifact_endpoint: the job service takes files at {artifact_staging_endpoint}, which does not answer "
                f"({_reason(error)}); write the HOST:PORT that this process reaches it at"
            ) from error

    def run(self, preparation_id: str) -> Any:
        # Beam would follow the job for as long only.
        self.timeout = None
        try:
            return super().run(preparation_id)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            with _explaining(self.options, lost=True):  # it has answered `prepare`
                raise


class _Result(portable_runner.PipelineResult):
    """A submitted pipeline, whose errors are messages."""

    def __init__(
        self, options: PipelineOptions, job_service: Any, job_id: str, messages: Any, states: Any, cleanup: list[Any]
    ):
        super().__init__(job_service, job_id, _until_lost(messages), states, cleanup)
        self._options = options

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Waits until the pipeline ends, or for a time.

        Args:
          duration: Time in milliseconds; None for no limit.

        Raises:
          ConfigurationError: The workers lack a module.
          TrainingError: The job service is gone.
          RuntimeError: The pipeline failed.
        """
        try:
            with _explaining(self._options, lost=True):
                return super().wait_until_finish(duration)
        except RuntimeError as error:
            missing = _find_missing_module(str(error))
            if missing is None:
                raise
            raise missing from error
        except (KeyboardInterrupt, SystemExit):
            # Otherwise the job service would go on with it.
            with contextlib.suppress(grpc.RpcError):
                self.cancel()
            raise


def _until_lost(messages: Any) -> Iterator[Any]:
    """Yields messages until the job service is gone, which its states tell, too."""
    with contextlib.suppress(grpc.RpcError):
        yield from messages


class _Pool(BeamFnExternalWorkerPoolServicer):
    """A worker pool in this process, for those who know its token."""

    def __init__(self, token: str):
        super().__init__()
        self._token = token

    def StartWorker(self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802 (Beam's name)
        if not hmac.compare_digest(request.params.get(_TOKEN, "").encode(), self._token.encode()):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this worker pool belongs to another pipeline")
        return super().StartWorker(request, context)


def _start_pool() -> tuple[grpc.Server, str, str]:
    """Starts a worker pool on loopback; returns the server, its address and token."""
    token = secrets.token_hex()
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=_SERVER_OPTIONS)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(_Pool(token), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}", token


def _check_workers(options: PipelineOptions) -> None:
    """Runs a small pipeline, once in this process for the same workers.

    Raises:
      ConfigurationError: No worker answers in time, or it cannot run our pipelines.
    """
    portable = options.view_as(PortableOptions)
    workers = (
        portable.job_endpoint,
        portable.environment_type,
        portable.environment_config,
        tuple(portable.environment_options or ()),
    )
    if workers in _checked:
        return
    seconds = portable.job_server_timeout
    pipeline = beam.Pipeline(runner=_CheckRunner(), options=copy.deepcopy(options))
    _ = pipeline | beam.Create([None]) | beam.Map(worker_check.check_version, worker_check.VERSION)
    result = pipeline.run()
    try:
        state = result.wait_until_finish(seconds * 1000)
    except TfxDistributeError:
        raise
    except RuntimeError as error:
        raise ConfigurationError(
            f"beam.environment_type: the job service at {portable.job_endpoint} cannot use these workers "
            f"({_last_line(str(error))}); {_describe_workers(portable)}"
        ) from error
    if not PipelineState.is_terminal(state):
        with contextlib.suppress(grpc.RpcError):
            result.cancel()
        raise ConfigurationError(
            f"beam.environment_type: no worker has answered the job service at {portable.job_endpoint} within {seconds} s; "
            f"{_describe_workers(portable)}, or give it more time with job_server_timeout"
        )
    _checked.add(workers)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line not in ("", ">")), "no reason given")


class _CheckRunner(PortableRunner):
    """Runs the pipeline that checks workers."""

    run_portable_pipeline = PortableRunner._submit


def _describe_workers(options: PortableOptions) -> str:
    """Returns where to look if workers do not answer."""
    environment = options.environment_type or "DOCKER"
    config = options.environment_config or ", ".join(options.environment_options or ())
    if environment == "EXTERNAL":
        return f"check that a worker pool listens at {config}, as the job service reaches it, and reaches the job service"
    if environment == "PROCESS":
        return f"see in its log whether it could start {config}"
    if environment == "LOOPBACK":
        return "check that it runs on this machine, which LOOPBACK needs"
    return f"check that it can start containers of the image {config}"


@contextlib.contextmanager
def _explaining(options: PipelineOptions, lost: bool = False) -> Iterator[None]:
    """Turns errors of requests to the job service into messages.

    Args:
      options: Beam's options.
      lost: True if the job service has answered before.

    Raises:
      ConfigurationError: The job service does not answer.
      TrainingError: It has answered, and does not any more.
    """
    portable = options.view_as(PortableOptions)
    endpoint = portable.job_endpoint
    try:
        yield
    except grpc.RpcError as error:
        if lost:
            raise TrainingError(
                f"the job service at {endpoint} is gone ({_reason(error)}); its log says why, for instance that it cannot "
                f"start workers: {_describe_workers(portable)}"
            ) from error
        raise ConfigurationError(
            f"beam.job_endpoint: {endpoint} does not answer as Beam's job services do ({_reason(error)}); write the "
            "HOST:PORT of one"
        ) from error


def _reason(error: grpc.RpcError) -> str:
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    return f"{code().name}: {details()}" if code and details else str(error)


def _find_missing_module(text: str) -> ConfigurationError | None:
    """Returns a message about a module that workers cannot import, if there is one."""
    match = re.search(r"ModuleNotFoundError: No module named '([^']+)'", text)
    if match is None:
        return None
    if match[1].partition(".")[0] == "tfx_distribute":
        return ConfigurationError(
            "beam.environment_config: the workers have no tfx-distribute; start them from the image of the pipeline's "
            "steps, or install it where they run"
        )
    return ConfigurationError(
        f"beam.environment_config: the workers cannot import {match[1]!r}; start them from the image of the pipeline's "
        "steps, or with a PYTHONPATH that has the folder of the pipeline's module"
    )
