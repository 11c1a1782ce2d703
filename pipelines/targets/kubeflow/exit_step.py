"""Adds the step that sends the notification about a run on Kubeflow Pipelines."""

import copy

from tfx_distribute.pipelines.notify.kubeflow_step import Settings
from tfx_distribute.pipelines.spec.pipeline import Notify
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow.machines import Document
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.errors import ConfigurationError

NAME = "notify"
MODULE = "tfx_distribute.pipelines.notify.kubeflow_step"


def add(pipeline: Document, notify: Notify, settings: KubeflowSettings) -> None:
    """Adds a step to a pipeline that runs when all others have ended, however they did.

    As kfp's `dsl.ExitHandler`, it puts the others into a pipeline within this one.
    Refuses a component with its name, or with that of the pipeline within.
    """
    if taken := {NAME, pipeline_ir.WHOLE} & set(pipeline["components"]):
        raise ConfigurationError(f"{taken.pop()}: is the name of what notifications need; give the component another id")
    step_settings = Settings(
        pipeline=pipeline["pipelineInfo"]["name"],
        urls=notify.urls,
        when=notify.when,
        steps=sorted(name for name, _, executor in pipeline_ir.iterate_steps(pipeline) if "container" in executor),
        api_service=settings.api_service,
        metadata_service=settings.metadata_service,
        page=settings.host or "",
    )
    root = pipeline["root"]
    parameters = root.get("inputDefinitions", {}).get("parameters", {})
    pipeline["components"][pipeline_ir.WHOLE] = {"dag": root["dag"]}
    inputs = {}
    if parameters:
        pipeline["components"][pipeline_ir.WHOLE]["inputDefinitions"] = {"parameters": copy.deepcopy(parameters)}
        passed_on = {parameter: {"componentInputParameter": parameter} for parameter in parameters}
        inputs = {"inputs": {"parameters": passed_on}}
    root["dag"] = {"tasks": {pipeline_ir.WHOLE: pipeline_ir.make_task(pipeline_ir.WHOLE, inputs)}}
    run_id = {"inputDefinitions": {"parameters": {"run_id": {"parameterType": "STRING"}}}}
    container = {
        "image": settings.image,
        "command": pipeline_ir.make_command(MODULE),
        "args": ["--run-id", "{{$.inputs.parameters['run_id']}}", "--settings", step_settings.to_json()],
    }
    task = {
        "inputs": {"parameters": {"run_id": {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}}},
        "dependentTasks": [pipeline_ir.WHOLE],
        "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
    }
    pipeline_ir.add_task(pipeline, NAME, run_id, {"container": container}, task)
