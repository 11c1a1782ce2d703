"""Defines the `beam` setting of a pipeline file and makes Beam's options from it.

All options have Beam's own names.
"""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tfx_distribute.pipelines.spec import beam_workers
from tfx_distribute.pipelines.spec.base import Scalar, SpecModel
from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class Runner:
    """One row of the table of runners.

    Attributes:
      name: Name of the runner in Beam.
      required: Options that the runner needs.
      optional: Other options that the runner accepts.
    """

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_WORKER_OPTIONS = (
    "environment_config",
    "environment_options",
    "sdk_worker_parallelism",
    "artifact_endpoint",
    "job_server_timeout",
)

# Keeps TFX from packaging itself for workers, which takes seconds for each component
# and which they would install with its dependencies: they are on this machine, or have
# an image with all of it.
_NO_PACKAGE = "--sdk_container_image=none"
_ANSWER_SECONDS = 40
# Options of Beam with which TFX does not package itself either.
_PACKAGES = ("extra_packages", "setup_file", "requirements_file")

# Sources: apache_beam.options.pipeline_options;
# https://beam.apache.org/documentation/runners/capability-matrix/ and
# https://cloud.google.com/dataflow/docs/reference/pipeline-options
RUNNERS = {
    # Our own runner, by its path: Beam's DirectRunner first looks for another runner on
    # the internet.
    "direct": Runner("tfx_distribute.components.beam.direct_runner.DirectRunner", optional=("direct_num_workers",)),
    "dataflow": Runner(
        "DataflowRunner",
        ("project", "region", "temp_location"),
        (
            "staging_location",
            "num_workers",
            "max_num_workers",
            "machine_type",
            "disk_size_gb",
            "service_account_email",
            "network",
            "subnetwork",
            "use_public_ips",
            "dataflow_kms_key",
            "sdk_container_image",
        ),
    ),
    # Our own runner, by its path, whose workers in this process need a token. It takes
    # the place of Beam's for Flink and Spark where they name a job service.
    "portable": Runner(
        "tfx_distribute.components.beam.portable_runner.PortableRunner",
        ("job_endpoint", "environment_type"),
        _WORKER_OPTIONS,
    ),
    "flink": Runner(
        "FlinkRunner",
        ("flink_master",),
        ("flink_version", "parallelism", "job_endpoint", "environment_type", *_WORKER_OPTIONS),
    ),
    "spark": Runner(
        "SparkRunner",
        ("spark_master_url",),
        ("spark_version", "spark_rest_url", "job_endpoint", "environment_type", *_WORKER_OPTIONS),
    ),
}


class Beam(SpecModel):
    """Runner of the Beam pipelines of all components. Options have Beam's own names."""

    runner: Literal["direct", "dataflow", "portable", "flink", "spark"] = "direct"
    """Where Beam pipelines run; `direct` runs them on this machine, `portable` on a job
    service, such as that of Flink, Spark or Prism."""
    direct_num_workers: int = Field(1, ge=0)
    """Processes of the direct runner; 0 for one per core. With 1, components run in the
    process of the pipeline."""
    project: str | None = None
    """Dataflow: the Google Cloud project."""
    region: str | None = None
    """Dataflow: the Google Cloud region."""
    temp_location: str | None = Field(None, pattern="^gs://")
    """Dataflow: Cloud Storage address of temporary files."""
    staging_location: str | None = Field(None, pattern="^gs://")
    """Dataflow: Cloud Storage address of the program; default below `temp_location`."""
    num_workers: int | None = Field(None, ge=1)
    """Dataflow: initial number of machines."""
    max_num_workers: int | None = Field(None, ge=1)
    """Dataflow: maximum number of machines."""
    machine_type: str | None = None
    """Dataflow: Compute Engine machine type."""
    disk_size_gb: int | None = Field(None, ge=1)
    """Dataflow: disk size of each machine, in GB."""
    service_account_email: str | None = None
    """Dataflow: service account of the machines."""
    network: str | None = None
    """Dataflow: Compute Engine network."""
    subnetwork: str | None = None
    """Dataflow: Compute Engine subnetwork."""
    use_public_ips: bool | None = None
    """Dataflow: whether the machines have external IP addresses."""
    dataflow_kms_key: str | None = None
    """Dataflow: key that encrypts data at rest."""
    sdk_container_image: str | None = None
    """Dataflow: image of the machines, with TFX and this package; default that of the
    pipeline's steps, if they have one."""
    flink_master: str | None = None
    """Flink: HOST:PORT of its REST service, or `[local]`."""
    flink_version: str | None = None
    """Flink: version of the cluster."""
    parallelism: int | None = Field(None, ge=1)
    """Flink: parallelism of the job."""
    spark_master_url: str | None = None
    """Spark: address of its master, or `local[4]`."""
    spark_version: str | None = None
    """Spark: major version of the cluster."""
    spark_rest_url: str | None = None
    """Spark: address of its REST service, for submitting without a local Spark."""
    job_endpoint: str | None = Field(None, pattern=beam_workers.ADDRESS)
    """Portable, Flink, Spark: HOST:PORT of the job service."""
    artifact_endpoint: str | None = Field(None, pattern=beam_workers.ADDRESS)
    """Portable, Flink, Spark: HOST:PORT where the job service takes files; default the
    address that it names itself."""
    job_server_timeout: int | None = Field(None, ge=1)
    """With `job_endpoint`: seconds that the job service has for each answer, default
    40. Flink and Spark without it: seconds that the job service has which Beam starts,
    default 300."""
    environment_type: beam_workers.EnvironmentType | None = None
    """Portable, Flink, Spark: how workers start, which run Python: as containers
    (`DOCKER`) or processes (`PROCESS`) of the job service, in worker pools that run
    already (`EXTERNAL`), or in this process (`LOOPBACK`)."""
    environment_config: str | dict[str, Any] | None = None
    """Portable, Flink, Spark: image of `DOCKER`, default that of the pipeline's steps;
    program of `PROCESS`, such as `/opt/venv/bin/tfx-distribute-beam-worker` or
    `{command: ..., env: {...}}`; HOST:PORT of the pool of `EXTERNAL`."""
    environment_options: list[str] | None = None
    """Portable, Flink, Spark: more options of the environment, such as
    `process_variables=...`."""
    sdk_worker_parallelism: int | None = Field(None, ge=0)
    """Portable, Flink, Spark: Python processes of each worker."""
    options: dict[str, Scalar | list[str]] = Field(default_factory=dict)
    """Any other Beam options, by name."""

    @property
    def names_job_service(self) -> bool:
        """True if the pipeline goes to a job service that runs already."""
        return self.job_endpoint is not None

    @model_validator(mode="after")
    def _check_consistent(self) -> "Beam":
        runner = RUNNERS[self.runner]
        for name in self.model_fields_set - {"runner", "options", *runner.required, *runner.optional}:
            accepting = [other for other, row in RUNNERS.items() if name in row.required + row.optional]
            raise ValueError(
                f"{name}: the runner {self.runner!r} has no such option; "
                f"leave it out, or write runner: {' or '.join(accepting)}"
            )
        missing = [name for name in runner.required if getattr(self, name) is None]
        if missing:
            raise ValueError(f"runner: {self.runner} needs {', '.join(missing)}")
        if self.environment_type:
            beam_workers.check(self.environment_type, self.environment_config, self.environment_options or ())
        is_here = beam_workers.is_loopback(self.job_endpoint or "")
        environment_type = self.environment_type or _default_environment_type(self)
        if self.names_job_service and environment_type == "LOOPBACK" and not is_here:
            raise ValueError(
                f"environment_type: the job service at {self.job_endpoint} reaches no worker in this process; write "
                "EXTERNAL, PROCESS or DOCKER, or the job_endpoint of a job service on this machine"
            )
        if self.options:
            self._check_options()
        return self

    def _check_options(self) -> None:
        # Imported here because it takes a second, and most pipelines do not need it.
        from apache_beam.options.pipeline_options import PipelineOptions

        known = {name for kind in PipelineOptions.__subclasses__() for name in kind([]).get_all_options()}
        for name in self.options:
            if name in ("runner", *type(self).model_fields):
                raise ValueError(f"options: {name} is a setting of its own; write it under beam")
            if name == "direct_running_mode":
                raise ValueError("options: direct_running_mode follows from direct_num_workers; write that under beam")
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                raise ValueError(
                    f"options: Beam has no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
                )


def check_local(beam: Beam) -> None:
    """Checks that a pipeline with this setting can run on this machine.

    Raises:
      ConfigurationError: It cannot run here, or Beam would listen on all network
        interfaces and run any program that it receives there.
    """
    if beam.runner == "dataflow":
        raise ConfigurationError(
            "beam.runner: the machines of Dataflow cannot read this machine's files, where a local run keeps its artifacts; "
            "write runner: direct"
        )
    if not beam.names_job_service and (beam.environment_type or _default_environment_type(beam)) == "LOOPBACK":
        default = "" if beam.environment_type else f", the default for {beam.flink_master or beam.spark_master_url},"
        raise ConfigurationError(
            f"beam.environment_type: with LOOPBACK{default} Beam listens on all interfaces of this machine and runs "
            "any program that it is sent; write environment_type: DOCKER or PROCESS, the job_endpoint of a job service on "
            "this machine, or runner: direct"
        )
    if (beam.environment_type or _default_environment_type(beam)) == "DOCKER" and not _has_image(beam):
        raise ConfigurationError(
            "beam.environment_config: is missing; Beam's own image has neither TFX nor tfx-distribute: write the name of "
            "an image that the Dockerfile builds"
        )


def _has_image(beam: Beam) -> bool:
    options = beam.environment_options or ()
    return bool(beam.environment_config) or any(option.startswith("docker_container_image=") for option in options)


def _default_environment_type(beam: Beam) -> str:
    """Returns Beam's default environment: LOOPBACK for a cluster that Beam starts."""
    if beam.runner not in ("portable", "flink", "spark"):
        return ""
    starts_cluster = beam.flink_master in ("[local]", "[auto]") or re.fullmatch(
        r"local(\[.+\])?", beam.spark_master_url or ""
    )
    return "LOOPBACK" if starts_cluster else "DOCKER"


def make_pipeline_args(beam: Beam, image: str | None = None, module_folder: Path | None = None) -> list[str]:
    """Returns Beam's options as command line arguments, such as `--runner=FlinkRunner`.

    Args:
      beam: The setting.
      image: Container image of the pipeline's steps; the default image of Dataflow's
        machines, and of workers in containers.
      module_folder: Folder of the user's module, for worker processes on this machine.
    """
    runner = RUNNERS[beam.runner]
    if beam.runner == "direct":
        # A single worker runs in this process, which has imported everything. Several
        # are subprocesses, because threads would share one interpreter.
        mode = "in_memory" if beam.direct_num_workers == 1 else "multi_processing"
        arguments = [f"--runner={runner.name}", f"--direct_running_mode={mode}"]
        arguments += [f"--direct_num_workers={beam.direct_num_workers}", _NO_PACKAGE]
    else:
        values = beam.model_dump()
        if beam.runner == "dataflow":
            values["sdk_container_image"] = beam.sdk_container_image or image
        else:
            if beam.names_job_service:
                values["environment_type"] = beam.environment_type or _default_environment_type(beam)
                values["job_server_timeout"] = beam.job_server_timeout or _ANSWER_SECONDS
            values["environment_config"] = _make_environment_config(beam, image, module_folder)
        names = (*runner.required, *runner.optional)
        options = [option for name in names for option in _format_option(name, values[name])]
        name = (RUNNERS["portable"] if beam.names_job_service else runner).name
        arguments = [f"--runner={name}", *options]
        if beam.runner != "dataflow" and not any(beam.options.get(name) for name in _PACKAGES):
            arguments.append(_NO_PACKAGE)
    return arguments + [option for name, value in beam.options.items() for option in _format_option(name, value)]


def _make_environment_config(beam: Beam, image: str | None, module_folder: Path | None) -> str | None:
    environment_type = beam.environment_type or _default_environment_type(beam)
    if environment_type == "DOCKER" and not _has_image(beam):
        return image
    return beam_workers.format_config(
        environment_type, beam.environment_config, str(module_folder) if module_folder else None
    )


def _format_option(name: str, value: Any) -> list[str]:
    if value is False and name == "use_public_ips":
        return ["--no_use_public_ips"]  # for Beam, false differs from unset
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    return [f"--{name}={item}" for item in value] if isinstance(value, list) else [f"--{name}={value}"]
