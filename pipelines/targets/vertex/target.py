"""Defines the target `vertex`: Vertex AI Pipelines."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.targets.target import SCHEDULE_OPTIONS, Package, RemoteTarget, Submitted
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.remote_runs import RemoteRuns
    from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings


class VertexTarget(RemoteTarget["VertexSettings"]):
    """Vertex AI. The compiled file is the JSON of a PipelineJob."""

    name = "vertex"
    title = "Vertex AI"
    suffix = ".json"
    setting_options = ("project", "region", "service_account", "pipeline_root")
    place_options = compile_options = (
        click.Option(["--project"], help="Vertex AI: Google Cloud project; default targets.vertex.project."),
        click.Option(["--region"], help="Vertex AI: Google Cloud region; default targets.vertex.region."),
    )
    submit_options = (
        click.Option(
            ["--labels"], multiple=True, metavar="KEY=VALUE", help="Vertex AI: a label of the run. May be repeated."
        ),
        *SCHEDULE_OPTIONS,
    )

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Checks that options of one run and those of a schedule are not mixed."""
        if options.get("experiment"):
            raise ConfigurationError("--experiment: is for Kubeflow; on Vertex AI write --labels")
        super().check_options(options)

    def check(self, settings: "VertexSettings") -> None:
        """Checks the settings and the machines."""
        from tfx_distribute.pipelines.machines import accelerators
        from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER
        from tfx_distribute.pipelines.targets.vertex import machines
        from tfx_distribute.trainer_module.job import strategy_table

        spec = self.spec
        for setting in ("project", "region"):
            if getattr(settings, setting) is None:
                raise ConfigurationError(
                    f"targets.vertex.{setting}: is missing; write it, or give --{setting} with the command"
                )
        accelerators.check_all(spec.resources, "vertex")
        for name, machine in spec.resources.items():
            if name not in (TRAINER, PARAMETER_SERVER):
                machines.check_step(name, machine)
        distribution = spec.trainer.parameters.distribution
        if distribution.all_reduce == "reduction_server" and not self.trainer_machine.accelerator:
            raise ConfigurationError(
                "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send; write the kind of "
                "GPU, such as nvidia-l4, or all_reduce: auto"
            )
        if settings.training == "step":
            if reason := machines.unsupported_in_step(self.trainer_machine, settings):
                raise ConfigurationError(f"targets.vertex.training: a step has no {reason}; write custom_job or auto")
            strategy_table.check_all_reduce(distribution, "a step")
        machines.launcher_settings(spec.name, spec.resources, settings)  # raises if there is no such machine

    def check_address(self, setting: str, path: str, settings: "VertexSettings") -> None:
        """Checks that other machines can reach a path."""
        if not path.startswith("gs://"):
            raise ConfigurationError(
                f"{setting}: {path} cannot be reached by a step; for Vertex AI write an address such as gs://bucket/folder"
            )

    def find_warnings(self) -> list[str]:
        """Warns of idle devices, and of notifications, which are not sent."""
        warnings = super().find_warnings()
        if self.spec.notify:
            warnings.append(
                "notify: no notification is sent about runs on Vertex AI; make an alerting policy of Cloud Monitoring for "
                "its pipeline jobs"
            )
        return warnings

    @classmethod
    def open_runs(cls, options: Mapping[str, Any]) -> "RemoteRuns":
        """Connects to Vertex AI."""
        from tfx_distribute.pipelines.targets.vertex.client import VertexRuns

        return VertexRuns(options.get("project"), options.get("region"))

    def start(
        self, package: Package, arguments: Mapping[str, Any], schedule: Mapping[str, Any] | None
    ) -> "tuple[RemoteRuns, Submitted]":
        """Makes the job of the pipeline, and starts it."""
        from google.cloud.aiplatform_v1.types import CustomJob

        from tfx_distribute.components.launchers.vertex import service
        from tfx_distribute.pipelines.targets.vertex import client

        service.parse(CustomJob, self.launches() or {})  # raises if the API has no such fields
        labels = dict(label.partition("=")[::2] for label in self.options.get("labels") or ())
        # The arguments are the defaults of the compiled pipeline.
        job = client.make_job(package.pipeline, self.settings, self.options.get("run_name"), labels)
        runs = client.VertexRuns(self.settings.project, self.settings.region)
        return runs, runs.submit(job, schedule)
