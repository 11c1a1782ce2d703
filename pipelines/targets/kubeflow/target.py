"""Defines the target `kubeflow`: open-source Kubeflow Pipelines."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfx_distribute.pipelines.targets.target import SCHEDULE_OPTIONS, Package, RemoteTarget, Submitted
from tfx_distribute.trainer_module.errors import ConfigurationError

if TYPE_CHECKING:
    from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
    from tfx_distribute.pipelines.targets.remote_runs import RemoteRuns


class KubeflowTarget(RemoteTarget["KubeflowSettings"]):
    """Kubeflow Pipelines. The compiled file is YAML in two documents.

    The first is the pipeline, the second says where its steps run.
    """

    name = "kubeflow"
    title = "Kubeflow Pipelines"
    times = (*RemoteTarget.times, "no_catchup")
    suffix = ".yaml"
    setting_options = ("host", "namespace", "experiment", "service_account", "pipeline_root")
    place_options = (
        click.Option(["--host"], help="Kubeflow: address of its API; default targets.kubeflow.host, or what kfp finds."),
        click.Option(["-n", "--namespace"], help="Kubeflow: namespace of the run, in an installation for several users."),
        click.Option(
            ["--existing-token"],
            envvar="KFP_EXISTING_TOKEN",
            help="Kubeflow: token to log in to the API with; safer in $KFP_EXISTING_TOKEN.",
        ),
    )
    submit_options = (
        *SCHEDULE_OPTIONS,
        click.Option(
            ["--no-catchup"], is_flag=True, help="Kubeflow: after a pause, only the latest of the missed runs of --cron."
        ),
    )

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Checks that options of one run and those of a schedule are not mixed."""
        super().check_options(options)
        if "TZ=" in (options.get("cron") or ""):
            raise ConfigurationError(
                "--cron: Kubeflow Pipelines has one time zone for all schedules, UTC unless CRON_SCHEDULE_TIMEZONE of its "
                "API server says otherwise; leave TZ= out"
            )

    def check(self, settings: "KubeflowSettings") -> None:
        """Checks the settings and the machines."""
        from tfx_distribute.pipelines.machines import accelerators
        from tfx_distribute.pipelines.targets.kubeflow import machines
        from tfx_distribute.trainer_module.job import strategy_table

        spec, root, has_gs_root = self.spec, settings.pipeline_root, settings.pipeline_root.startswith("gs://")
        if spec.push and spec.push.directory is None and not has_gs_root:
            raise ConfigurationError(
                f"push.directory: is missing; a step cannot push to {root}: write a gs:// address, or a folder below the "
                "mount_path of a volume"
            )
        if settings.training_dir is not None:
            self.check_address("targets.kubeflow.training_dir", settings.training_dir, settings)
        if spec.beam.runner != "direct" and not has_gs_root:
            raise ConfigurationError(
                f"beam.runner: the machines of {spec.beam.runner} reach nothing at {root}; write runner: direct, or a gs:// "
                "pipeline_root"
            )
        accelerators.check_all(spec.resources, settings.platform)
        distribution = spec.trainer.parameters.distribution
        strategy_table.check_all_reduce(distribution, "Kubeflow")
        launcher = machines.launcher_settings(spec.name, spec.resources, settings)
        if launcher.runs_remotely(distribution) and settings.training_dir is None and not has_gs_root:
            raise ConfigurationError(
                f"targets.kubeflow.training_dir: is missing; the pods of a training cannot reach {root}: write a folder "
                "below the mount_path of a volume that all can write to, or a gs:// address"
            )

    def check_address(self, setting: str, path: str, settings: "KubeflowSettings") -> None:
        """Checks that a step can reach a path, which it can at gs:// and on volumes.

        Kubeflow copies artifacts; it imports a base model as one.
        """
        mounts = [volume.mount_path for volume in settings.volumes]
        if setting == "trainer.base_model":
            # Not oci://, since TensorFlow cannot read a model in an image.
            if not path.startswith(("gs://", "s3://", "minio://")):
                raise ConfigurationError(
                    f"{setting}: Kubeflow Pipelines cannot import {path}; write an address such as gs://bucket/folder, or "
                    "latest_blessed"
                )
        elif not path.startswith("gs://") and not any(Path(path).is_relative_to(mount) for mount in mounts):
            raise ConfigurationError(
                f"{setting}: {path} cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder, "
                f"or a folder below the mount_path of a volume of targets.kubeflow ({', '.join(mounts) or 'it has none'})"
            )

    def find_warnings(self) -> list[str]:
        """Warns of idle devices, and of notifications without addresses."""
        warnings, notify = super().find_warnings(), self.spec.notify
        if notify and not any(notify.urls in secret.env for secret in self.settings.secrets):
            warnings.append(
                f"notify.urls: no secret sets {notify.urls} in the steps, so no notification is sent; write "
                f"targets.kubeflow.secrets: [{{name: SECRET, env: {{{notify.urls}: KEY}}}}]"
            )
        return warnings

    @classmethod
    def open_runs(cls, options: Mapping[str, Any]) -> "RemoteRuns":
        """Connects to the API of Kubeflow Pipelines."""
        from tfx_distribute.pipelines.targets.kubeflow.client import KubeflowRuns

        return KubeflowRuns(*map(options.get, ("host", "namespace", "existing_token")))

    def start(
        self, package: Package, arguments: Mapping[str, Any], schedule: Mapping[str, Any] | None
    ) -> "tuple[RemoteRuns, Submitted]":
        """Uploads the pipeline with `kfp`."""
        from tfx_distribute.pipelines.targets.kubeflow import client

        runs = client.KubeflowRuns(self.settings.host, self.settings.namespace, self.options.get("existing_token"))
        run_name = self.options.get("run_name")
        return runs, runs.submit(self.spec.name, package.to_text(), self.settings, arguments, run_name, schedule)
