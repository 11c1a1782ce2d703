"""Defines the target `vertex`: Vertex AI Pipelines."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.runners.target import Package, RemoteTarget, follow

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from tfx_distribute.pipelines.runners.finding import Finding
    from tfx_distribute.pipelines.runners.remote_runs import RemoteRuns
    from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
    from tfx_distribute.pipelines.spec.machines import MachineSpec

_SCHEDULE = ("start_time", "end_time", "max_run_count", "max_concurrent_run_count")


class VertexTarget(RemoteTarget["VertexSettings"]):
    """Vertex AI. The compiled file is the JSON of a PipelineJob."""

    name = "vertex"
    title = "Vertex AI"
    suffix = ".json"
    setting_options = (
        "project",
        "region",
        "network",
        "encryption_spec_key_name",
        "service_account",
        "pipeline_root",
    )
    compile_options = (
        click.Option(["--project"], help="Vertex AI: Google Cloud project; default targets.vertex.project."),
        click.Option(["--region"], help="Vertex AI: Google Cloud region; default targets.vertex.region."),
    )
    submit_options = (
        click.Option(["--network"], help="Vertex AI: network to peer with, projects/NUMBER/global/networks/NAME."),
        click.Option(["--encryption-spec-key-name"], help="Vertex AI: Cloud KMS key that encrypts everything stored."),
        click.Option(["--job-id"], help="Vertex AI: id of the job; default the pipeline's name and the time."),
        click.Option(
            ["--labels"], multiple=True, metavar="KEY=VALUE", help="Vertex AI: a label of the run. May be repeated."
        ),
        click.Option(["--cron"], help="Vertex AI: run repeatedly, e.g. 'TZ=Europe/Zurich 0 3 * * 1-5'."),
        click.Option(["--start-time"], help="Vertex AI: first time of --cron, RFC 3339."),
        click.Option(["--end-time"], help="Vertex AI: last time of --cron, RFC 3339."),
        click.Option(["--max-run-count"], type=click.IntRange(1), help="Vertex AI: total number of runs of --cron."),
        click.Option(
            ["--max-concurrent-run-count"],
            type=click.IntRange(1),
            help="Vertex AI: runs of --cron at a time; default 1.",
        ),
        click.Option(["--skip-checks"], is_flag=True, help="Vertex AI: submit without the checks of `doctor`."),
    )

    run_options = ("project", "region")

    @classmethod
    def settings_class(cls) -> "type[VertexSettings]":
        """Returns `VertexSettings`."""
        from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

        return VertexSettings

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Checks that options of one run and those of a schedule are not mixed."""
        from tfx_distribute.trainer_module.errors import ConfigurationError

        if options.get("cron") is not None:
            for name in ("wait", "experiment", "job_id"):
                if options.get(name):
                    raise ConfigurationError(
                        f"{_flag(name)}: is for one run, and --cron makes a schedule; leave one of them out"
                    )
        else:
            for name in _SCHEDULE:
                if options.get(name) is not None:
                    raise ConfigurationError(f"{_flag(name)}: belongs to a schedule; write --cron too")

    def validate(self) -> "VertexSettings":
        """Checks the settings, the machines, and that steps can reach the data."""
        from tfx_distribute.pipelines.runners.vertex import checks

        return checks.validate(self.spec)

    def find_warnings(self) -> list[str]:
        """Returns which machines may not start, and what is idle."""
        from tfx_distribute.pipelines.runners.vertex import checks

        return checks.find_warnings(self.spec, self.settings)

    def launcher_settings(self) -> "VertexSettings":
        """Returns the machines that train."""
        from tfx_distribute.pipelines.runners.vertex import trainer_settings

        return trainer_settings.launcher(self.spec.name, self.spec.resources, self.settings)

    def diagnose(self) -> "Iterator[Finding]":
        """Checks the project for the pipeline; see `doctor.diagnosis`."""
        from tfx_distribute.pipelines.runners.vertex.doctor import diagnosis

        yield from diagnosis.diagnose(self.spec, self.settings, self.launches())

    def make_manifests(self) -> str:
        """Returns `gcloud` commands that grant the roles of this pipeline."""
        from tfx_distribute.pipelines.runners.vertex import access

        grants = access.find_grants(self.spec, self.settings, trains_remotely=self.launches() is not None)
        return access.make_script(self.spec.name, str(self.settings.project), grants)

    @classmethod
    def compile_pipeline(
        cls,
        pipeline: "Pipeline",
        settings: "VertexSettings",
        resources: "Mapping[str, MachineSpec]",
        defaults: Mapping[str, Any] | None = None,
    ) -> Package:
        """Compiles a TFX pipeline; see `compiler.compile_pipeline`."""
        from tfx_distribute.pipelines.runners.vertex import compiler

        return compiler.compile_pipeline(pipeline, settings, resources, defaults)

    @classmethod
    def open_runs(cls, options: Mapping[str, Any]) -> "RemoteRuns":
        """Connects to Vertex AI."""
        from tfx_distribute.pipelines.runners.vertex.runs import VertexRuns

        return VertexRuns(options.get("project"), options.get("region"))

    def submit(self, package: Package, arguments: Mapping[str, Any], wait: bool, report: Callable[[str], None]) -> bool:
        """Runs the pipeline once, or with the option `cron` on a schedule.

        Checks the project first, unless the option `skip_checks` is set.
        """
        from tfx_distribute.pipelines.runners.vertex import client

        run = client.Run(
            name=self.spec.name,
            document=package.to_text(),
            arguments=arguments,
            display_name=self.options.get("run_name"),
            job_id=self.options.get("job_id"),
            experiment=self.options.get("experiment"),
            labels=_parse_labels(self.options.get("labels") or ()),
        )
        pipelines = client.Pipelines(self.settings)
        if not self.options.get("skip_checks"):
            self._check_project()
        if cron := self.options.get("cron"):
            limits = {name: value for name in _SCHEDULE if (value := self.options.get(name)) is not None}
            schedule = pipelines.schedule(run, client.Schedule(cron, **limits))
            report(f"schedule {schedule.address}")
            return True
        submitted = pipelines.submit(run)
        return follow(submitted, pipelines.wait if wait else None, client.SUCCESS_STATES, report)

    def _check_project(self) -> None:
        """Raises ConfigurationError if the run would fail in this project."""
        from tfx_distribute.trainer_module.errors import ConfigurationError

        failures = [finding for finding in self.diagnose() if finding.status == "fail"]
        if failures:
            lines = "".join(f"\n  {finding.check}: {finding.text}; {finding.remedy}" for finding in failures)
            raise ConfigurationError(
                f"the run would fail in project {self.settings.project} (--skip-checks submits it anyway):{lines}"
            )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    from tfx_distribute.trainer_module.errors import ConfigurationError

    for label in labels:
        if "=" not in label:
            raise ConfigurationError(f"--labels: {label!r} is not a label; write KEY=VALUE")
    return dict(label.split("=", 1) for label in labels)
