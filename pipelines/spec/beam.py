"""Defines the `beam` setting of a pipeline file and makes Beam's options from it.

All options have Beam's own names.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tfx_distribute.components import timeouts
from tfx_distribute.components.spec_model import Scalar, SpecModel
from tfx_distribute.trainer_module.errors import ConfigurationError

_ADDRESS = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$"


@dataclass(frozen=True)
class Runner:
    """One row of the table of runners: a name in Beam, and the names of settings."""

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


# Keeps TFX from packaging itself for workers, which takes seconds for each component
# and which they would install with its dependencies: they are on this machine, or have
# an image with all of it.
_NO_PACKAGE = "--sdk_container_image=none"

RUNNERS = {
    # Our own runner, by its path: Beam's DirectRunner first looks for another runner on
    # the internet.
    "direct": Runner("tfx_distribute.components.beam.direct_runner.DirectRunner", optional=("direct_num_workers",)),
    "dataflow": Runner("DataflowRunner", ("project", "region", "temp_location"), ("sdk_container_image",)),
    "portable": Runner(
        "tfx_distribute.components.beam.portable_runner.PortableRunner",
        ("job_endpoint", "environment_type"),
        ("environment_config",),
    ),
}


class Beam(SpecModel):
    """Runner of the Beam pipelines of all components. Options have Beam's own names."""

    runner: Literal["direct", "dataflow", "portable"] = "direct"
    """Where Beam pipelines run; `direct` runs them on this machine, `portable` on a job
    service, such as that of Flink, Spark or Prism."""
    direct_num_workers: int | None = Field(None, ge=0)
    """Processes of the direct runner; 0 for one per core. With 1, components run in the
    process of the pipeline. The default is 1 in containers. On this machine, it is 1
    for data files of less than 64 MiB and for examples of less than 16 MiB (they are
    compressed), and otherwise one per core, but at most 8, and one per 4 GiB of
    memory."""
    project: str | None = None
    """Dataflow: the Google Cloud project."""
    region: str | None = None
    """Dataflow: the Google Cloud region."""
    temp_location: str | None = Field(None, pattern="^gs://")
    """Dataflow: Cloud Storage address of temporary files."""
    sdk_container_image: str | None = None
    """Dataflow: image of the machines, with TFX and this package; default that of the
    pipeline's steps, if they have one."""
    job_endpoint: str | None = Field(None, pattern=_ADDRESS)
    """Portable: HOST:PORT of the job service."""
    environment_type: Literal["DOCKER", "PROCESS", "EXTERNAL"] | None = None
    """Portable: how workers start, which run Python: as containers (`DOCKER`) or
    processes (`PROCESS`) of the job service, or in worker pools that run already
    (`EXTERNAL`)."""
    environment_config: str | None = None
    """Portable: image of `DOCKER`, default that of the pipeline's steps; program of
    `PROCESS`, such as `/opt/venv/bin/tfx-distribute-beam-worker`; HOST:PORT of the pool
    of `EXTERNAL`."""
    options: dict[str, Scalar | list[str]] = Field(default_factory=dict)
    """Any other Beam options, by name, such as `max_num_workers` of Dataflow."""

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
        if self.environment_type in ("PROCESS", "EXTERNAL") and not self.environment_config:
            needed = "HOST:PORT of a worker pool" if self.environment_type == "EXTERNAL" else "path of a program"
            raise ValueError(f"environment_config: is missing; {self.environment_type} needs the {needed}")
        if self.options:
            self._check_options()
        return self

    def _check_options(self) -> None:
        # Imported here because it takes a second, and most pipelines do not need it.
        from apache_beam.options.pipeline_options import PipelineOptions

        known = {name for kind in PipelineOptions.__subclasses__() for name in kind([]).get_all_options()}
        for name in self.options:
            if name in ("runner", "direct_running_mode", *type(self).model_fields):
                raise ValueError(f"options: {name} is a setting of its own; write it under beam")
            if name not in known:
                raise ValueError(f"options: Beam has no option {name!r}")


def check_local(beam: Beam) -> None:
    """Checks that a pipeline with this setting can run on this machine."""
    if beam.runner == "dataflow":
        raise ConfigurationError(
            "beam.runner: the machines of Dataflow cannot read this machine's files, where a local run keeps its artifacts; "
            "write runner: direct"
        )
    if beam.environment_type == "DOCKER" and not beam.environment_config:
        raise ConfigurationError(
            "beam.environment_config: is missing; Beam's own image has neither TFX nor tfx-distribute: write the name of "
            "an image that the Dockerfile builds"
        )


def make_pipeline_args(beam: Beam, image: str | None = None, module_folder: Path | None = None) -> list[str]:
    """Returns Beam's options as command line arguments, such as `--region=us-east1`.

    `image`, that of the pipeline's steps, is the default for Dataflow's machines and
    for workers in containers. Worker processes on this machine import the user's module
    from `module_folder`.
    """
    runner = RUNNERS[beam.runner]
    arguments = [f"--runner={runner.name}"]
    values: dict[str, Any] = {name: getattr(beam, name) for name in (*runner.required, *runner.optional)}
    if beam.runner == "dataflow":
        values["sdk_container_image"] = beam.sdk_container_image or image
    else:
        arguments.append(_NO_PACKAGE)
    if beam.runner == "direct":
        processes = values.pop("direct_num_workers")
        if processes is None and image:
            processes = 1
        if processes is not None:  # else each component's data decide: targets/local/beam_processes.py
            arguments += make_direct_arguments(processes)
    if beam.runner == "portable":
        values["job_server_timeout"] = timeouts.BEAM_ANSWER_SECONDS
    if beam.environment_type == "DOCKER":
        values["environment_config"] = beam.environment_config or image
    if beam.environment_type == "PROCESS":
        variables = {"PYTHONPATH": str(module_folder)} if module_folder else {}
        values["environment_config"] = json.dumps({"command": beam.environment_config, "env": variables})
    values |= beam.options
    return arguments + [option for name, value in values.items() for option in _format_option(name, value)]


def make_direct_arguments(processes: int) -> list[str]:
    """Returns arguments for so many processes of the direct runner; 0 for one per core.

    A single one is that of the component, which has imported everything. Several are
    others, because threads would share one interpreter.
    """
    mode = "in_memory" if processes == 1 else "multi_processing"
    return [f"--direct_running_mode={mode}", f"--direct_num_workers={processes}"]


def _format_option(name: str, value: Any) -> list[str]:
    if value is False and name == "use_public_ips":
        return ["--no_use_public_ips"]  # for Beam, false differs from unset
    if value is None or value is False:
        return []
    if value is True:
        return [f"--{name}"]
    return [f"--{name}={item}" for item in value] if isinstance(value, list) else [f"--{name}={value}"]
