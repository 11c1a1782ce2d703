"""Adds the step that sends the notification about a run on Kubeflow Pipelines."""

from typing import Any

from tfx_distribute.pipelines.notify.kubeflow_step import Settings
from tfx_distribute.pipelines.spec.machines import DEFAULT, MachineSpec
from tfx_distribute.pipelines.spec.pipeline import Notify, PipelineSpec
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow import pods
from tfx_distribute.pipelines.targets.kubeflow.compiler import Package
from tfx_distribute.pipelines.targets.kubeflow.machines import make_machine
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings

NAME = "notify"
MODULE = "tfx_distribute.pipelines.notify.kubeflow_step"


def add(package: Package, spec: PipelineSpec, notify: Notify, settings: KubeflowSettings) -> Package:
    """Adds the step to a compiled pipeline; refuses a component with its name."""
    pipeline = dict(package.pipeline)
    metrics = spec.evaluate.metrics if spec.evaluate else {}
    step_settings = Settings(
        pipeline=spec.name,
        urls=notify.urls,
        when=notify.when,
        steps=pipeline_ir.list_containers(pipeline),
        validator="ExampleValidator",
        api_service=settings.api_service,
        metadata_service=settings.metadata_service,
        thresholds={
            str(metric.config.get("name", name)): metric.describe_thresholds()
            for name, metric in metrics.items()
            if metric.has_threshold
        },
        page=settings.host or "",
    )
    container = {
        "image": settings.image,
        "command": pipeline_ir.make_command(MODULE),
        "args": ["--settings", step_settings.to_json()],
    }
    pipeline = pipeline_ir.with_exit_step(pipeline, NAME, container)
    machine = make_machine(spec.resources.get(DEFAULT, MachineSpec()), settings.platform)
    config = pods.make_executor_config(machine, settings, settings.labels)
    executors = package.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    if config:
        executors = {**executors, f"{NAME}{pipeline_ir.EXECUTOR}": config}
    platform: dict[str, Any] = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}
    return Package(pipeline, platform, package.warnings)
