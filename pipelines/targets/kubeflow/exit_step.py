"""Adds the step that sends the notification about a run on Kubeflow Pipelines."""

from tfx_distribute.pipelines.notify.kubeflow_step import Settings
from tfx_distribute.pipelines.spec.pipeline import Notify, PipelineSpec
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow.machines import Document
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings

NAME = "notify"
MODULE = "tfx_distribute.pipelines.notify.kubeflow_step"


def add(pipeline: Document, spec: PipelineSpec, notify: Notify, settings: KubeflowSettings) -> None:
    """Adds the step to a compiled pipeline; refuses a component with its name."""
    step_settings = Settings(
        pipeline=spec.name,
        urls=notify.urls,
        when=notify.when,
        steps=pipeline_ir.list_containers(pipeline),
        validator="ExampleValidator",
        api_service=settings.api_service,
        metadata_service=settings.metadata_service,
        page=settings.host or "",
    )
    container = {
        "image": settings.image,
        "command": pipeline_ir.make_command(MODULE),
        "args": ["--settings", step_settings.to_json()],
    }
    pipeline_ir.add_exit_step(pipeline, NAME, container)
