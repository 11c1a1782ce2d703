"""The Beam runner of a pipeline's components: a setting -> Beam's options. Options are called as Beam calls them."""

import difflib
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from tfx_distribute.pipelines.spec.base import Scalar, SpecModel
from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class Runner:
    """One row of the table of runners.

    Attributes:
      name: What Beam calls it.
      required: Options that it does not run without.
      optional: Other options that it knows.
    """

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_WORKERS = ("environment_type", "environment_config", "environment_options", "sdk_worker_parallelism")

# Sources: apache_beam.options.pipeline_options; https://beam.apache.org/documentation/runners/capability-matrix/ and
# https://cloud.google.com/dataflow/docs/reference/pipeline-options
RUNNERS = {
    # Ours, by its path: that of Beam's own looks for another runner on the internet first.
    "direct": Runner("tfx_distribute.components.direct_runner.DirectRunner", optional=("direct_num_workers",)),
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
    "flink": Runner("FlinkRunner", ("flink_master",), ("flink_version", "parallelism", *_WORKERS)),
    "spark": Runner("SparkRunner", ("spark_master_url",), ("spark_version", "spark_rest_url", *_WORKERS)),
}


class Beam(SpecModel):
    """Where the Beam pipelines of all components run. Options have Beam's own names."""

    runner: Literal["direct", "dataflow", "flink", "spark"] = "direct"
    """`direct` is this machine."""
    direct_num_workers: int = Field(1, ge=0)
    """Processes of the direct runner; 0 for one a core. With 1, components work in the process that runs the pipeline."""
    project: str | None = None
    """Dataflow: the Google Cloud project."""
    region: str | None = None
    """Dataflow: the Google Cloud region."""
    temp_location: str | None = Field(None, pattern="^gs://")
    """Dataflow: an address for temporary files."""
    staging_location: str | None = Field(None, pattern="^gs://")
    """Dataflow: an address for the program; default below `temp_location`."""
    num_workers: int | None = Field(None, ge=1)
    """Dataflow: machines to begin with."""
    max_num_workers: int | None = Field(None, ge=1)
    """Dataflow: machines at most."""
    machine_type: str | None = None
    """Dataflow: Compute Engine machine type."""
    disk_size_gb: int | None = Field(None, ge=1)
    """Dataflow: disk of each machine."""
    service_account_email: str | None = None
    """Dataflow: service account of the machines."""
    network: str | None = None
    """Dataflow: Compute Engine network."""
    subnetwork: str | None = None
    """Dataflow: Compute Engine subnetwork."""
    use_public_ips: bool | None = None
    """Dataflow: whether the machines have external addresses."""
    dataflow_kms_key: str | None = None
    """Dataflow: key that encrypts data at rest."""
    sdk_container_image: str | None = None
    """Dataflow: image of the machines, with TFX and this package; default that of the pipeline's steps, if they have one."""
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
    """Spark: address of its REST service, to submit to it without a local Spark."""
    environment_type: Literal["DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK"] | None = None
    """Flink, Spark: how workers start what runs Python."""
    environment_config: str | None = None
    """Flink, Spark: the image of `DOCKER`, the command of `PROCESS`, the address of `EXTERNAL`."""
    environment_options: list[str] | None = None
    """Flink, Spark: further options of the environment, such as `process_command=...`."""
    sdk_worker_parallelism: int | None = Field(None, ge=0)
    """Flink, Spark: Python processes of each worker."""
    options: dict[str, Scalar | list[str]] = Field(default_factory=dict)
    """Any other options of Beam's, by their names."""

    @model_validator(mode="after")
    def _goes_together(self) -> "Beam":
        runner = RUNNERS[self.runner]
        for name in self.model_fields_set - {"runner", "options", *runner.required, *runner.optional}:
            able = [other for other, row in RUNNERS.items() if name in row.required + row.optional]
            raise ValueError(
                f"{name}: the runner {self.runner!r} has no such option; leave it out, or write runner: {' or '.join(able)}"
            )
        missing = [name for name in runner.required if getattr(self, name) is None]
        if missing:
            raise ValueError(f"runner: {self.runner} needs {', '.join(missing)}")
        if self.options:
            self._check_options()
        return self

    def _check_options(self) -> None:
        from apache_beam.options.pipeline_options import PipelineOptions  # a second; most pipelines need none

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
      ConfigurationError: It cannot, or Beam would listen on all interfaces of the machine, and run what it is sent there.
    """
    if beam.runner == "dataflow":
        raise ConfigurationError(
            "beam.runner: the machines of Dataflow cannot read this machine's files, where a local run keeps its artifacts; "
            "write runner: direct"
        )
    if (beam.environment_type or _default_environment_type(beam)) == "LOOPBACK":
        default = "" if beam.environment_type else f", the default for {beam.flink_master or beam.spark_master_url},"
        raise ConfigurationError(
            f"beam.environment_type: with LOOPBACK{default} Beam listens on all interfaces of this machine and runs "
            "whatever it is sent; write environment_type: DOCKER or PROCESS, or runner: direct"
        )


def _default_environment_type(beam: Beam) -> str:
    """Returns the environment that Beam takes if none is given: LOOPBACK with a cluster that it starts itself."""
    starts_cluster = beam.flink_master in ("[local]", "[auto]") or re.fullmatch(
        r"local(\[.+\])?", beam.spark_master_url or ""
    )
    return "LOOPBACK" if starts_cluster else "DOCKER"


def pipeline_args(beam: Beam, image: str | None = None) -> list[str]:
    """Beam's options, as words of a command line.

    Args:
      beam: The setting.
      image: Container image of the pipeline's steps; Dataflow's machines have it where no other is named.
    """
    if beam.runner == "dataflow" and beam.sdk_container_image is None:
        beam = beam.model_copy(update={"sdk_container_image": image})
    runner = RUNNERS[beam.runner]
    if beam.runner == "direct":
        # One process: this one, which has imported everything. Several: subprocesses, since threads share an interpreter.
        mode = "in_memory" if beam.direct_num_workers == 1 else "multi_processing"
        words = [f"--runner={runner.name}", f"--direct_running_mode={mode}"]
        words += [f"--direct_num_workers={beam.direct_num_workers}"]
        # Its workers are on this machine. Else TFX packs itself, seconds for each component, for machines that have it not.
        words += ["--sdk_container_image=none"]
    else:
        names = (*runner.required, *runner.optional)
        words = [f"--runner={runner.name}", *(word for name in names for word in _words(name, getattr(beam, name)))]
    return words + [word for name, value in beam.options.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> list[str]:
    if value is False and name == "use_public_ips":
        return ["--no_use_public_ips"]  # for Beam a third thing beside true and not said
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    return [f"--{name}={one}" for one in value] if isinstance(value, list) else [f"--{name}={value}"]
