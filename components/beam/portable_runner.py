"""Runs Beam pipelines on a job service, such as that of Prism, Flink or Spark.

Beam's own `PortableRunner` waits for minutes for a job service that does not answer,
and applies its time limit for answers to whole jobs of Prism. With workers in this
process (`LOOPBACK`) it listens on every interface, and runs what anybody sends. This
runner refuses that.
"""

import contextlib
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc, beam_runner_api_pb2
from apache_beam.runners.portability import portable_runner

from tfx_distribute.components import timeouts
from tfx_distribute.trainer_module.errors import ConfigurationError


class PortableRunner(portable_runner.PortableRunner):
    """Runs a Beam pipeline on the job service that `--job_endpoint` names.

    Takes the options of Beam's `PortableRunner`. The job service has 15 seconds to
    answer; the pipeline itself takes as long as it takes. To use it in a TFX pipeline,
    pass its path in `beam_pipeline_args`:

        --runner=tfx_distribute.components.beam.portable_runner.PortableRunner
    """

    def run_portable_pipeline(self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions) -> "_Result":
        """Submits a pipeline; raises a ConfigurationError if no service answers."""
        # Java's job services would look for a class of this name.
        options.view_as(StandardOptions).runner = None
        if any(each.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK for each in pipeline.components.environments.values()):
            raise ConfigurationError(
                "beam.environment_type: LOOPBACK lets in whoever reaches this machine; write PROCESS, EXTERNAL or DOCKER"
            )
        job_service = self.create_job_service(options)
        job_id, messages, states = job_service.submit(self._optimize_pipeline(pipeline, options))
        return _Result(job_service.job_service, job_id, messages, states)

    def create_job_service(self, options: PipelineOptions) -> "_JobService":
        """Connects to the job service, or raises a ConfigurationError."""
        portable = options.view_as(PortableOptions)
        channel = grpc.insecure_channel(portable.job_endpoint)
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        seconds = min(timeouts.BEAM_CONNECT_SECONDS, portable.job_server_timeout)
        try:
            grpc.channel_ready_future(channel).result(seconds)
            # Beam repeats this request for minutes.
            stub.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=seconds)
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            reason = error.details() if isinstance(error, grpc.Call) else "no answer"
            raise ConfigurationError(
                f"beam.job_endpoint: no job service of Beam has answered at {portable.job_endpoint} within {seconds} s "
                f"({reason}); start it, or write the HOST:PORT that this process reaches it at"
            ) from error
        return _JobService(stub, options)


class _JobService(portable_runner.JobServiceHandle):
    """A job service."""

    def run(self, preparation_id: str) -> Any:
        self.timeout = None  # Beam would follow the job for as long only
        return super().run(preparation_id)


class _Result(portable_runner.PipelineResult):
    """A submitted pipeline, which ends when this process is interrupted."""

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Waits until the pipeline ends, or for `duration` milliseconds."""
        try:
            return super().wait_until_finish(duration)
        except (KeyboardInterrupt, SystemExit):
            # Otherwise the job service would go on with it.
            with contextlib.suppress(grpc.RpcError):
                self.cancel()
            raise
