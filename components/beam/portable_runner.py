"""Runs Beam pipelines on a job service, such as that of Prism, Flink or Spark.

Beam's own `PortableRunner` does not say which job service does not answer, and applies
its time limit for answers to whole jobs of Prism.
"""

from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.portability import portable_runner

from tfx_distribute.trainer_module.errors import ConfigurationError


class PortableRunner(portable_runner.PortableRunner):
    """Runs a Beam pipeline on the job service that `--job_endpoint` names.

    Takes the options of Beam's `PortableRunner`. The job service has
    `--job_server_timeout` seconds for each answer; the pipeline itself takes as long as
    it takes. To use it in a TFX pipeline, pass its path in `beam_pipeline_args`:

        --runner=tfx_distribute.components.beam.portable_runner.PortableRunner
    """

    def create_job_service(self, options: PipelineOptions) -> "_JobService":
        """Connects to the job service; a ConfigurationError says that none answers."""
        portable = options.view_as(PortableOptions)
        if portable.environment_type == "LOOPBACK":  # listens on every interface, and runs what anybody sends
            raise ConfigurationError("environment_type: LOOPBACK lets in whoever reaches this machine; write PROCESS")
        try:
            return super().create_job_service(options)
        except grpc.FutureTimeoutError as error:
            raise ConfigurationError(
                f"beam.job_endpoint: no job service of Beam has answered at {portable.job_endpoint} within "
                f"{portable.job_server_timeout} s; start it, or write the HOST:PORT that this process reaches it at"
            ) from error

    def create_job_service_handle(self, job_service: Any, options: PipelineOptions) -> "_JobService":
        """Returns the job service whose answers are limited."""
        return _JobService(job_service, options)


class _JobService(portable_runner.JobServiceHandle):
    """A job service that runs jobs for as long as they take."""

    def run(self, preparation_id: str) -> Any:
        self.timeout = None  # Beam would follow the job for as long only
        return super().run(preparation_id)
