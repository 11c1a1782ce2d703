"""Compiles a pipeline for open-source Kubeflow Pipelines.

TFX's own KubeflowV2DagRunner compiles it; `pipeline_ir` adapts the result.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

import yaml
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.utils import name_utils

from tfx_distribute.components.launchers.kubernetes.job_kinds import QUEUE_LABEL
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.notify import kubeflow_step
from tfx_distribute.pipelines.spec.machines import DEFAULT, MachineSpec, keep_set
from tfx_distribute.pipelines.spec.pipeline import Notify
from tfx_distribute.pipelines.targets import compiler as targets_compiler
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow import machines
from tfx_distribute.pipelines.targets.kubeflow.machines import Document
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.targets.target import Package
from tfx_distribute.trainer_module.errors import ConfigurationError

EXIT_STEP = "notify"

SPOT_RETRIES = 3  # of a step on a spot machine
# The backend takes a missing duration as 0, and no step would be tried again. Argo
# counts the maximal duration from the start of the first try, and ends a later try when
# it is over, so that it has to be longer than any training.
BACKOFF = {"backoffDuration": "0s", "backoffFactor": 2.0, "backoffMaxDuration": f"{365 * 24 * 3600}s"}


class _Dumper(yaml.SafeDumper):
    """Quotes text that Kubeflow's parser of YAML would read as a number or a date.

    That one takes `12345e7`, `08`, `0o17` and `2026-1-5` for such; PyYAML does not.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, "'" if _LIKE_A_NUMBER.match(data) else None)


_LIKE_A_NUMBER = re.compile(r"[-+.]?[0-9]")
_Dumper.add_representer(str, _Dumper.represent_str)


def to_yaml(*documents: Document) -> str:
    """Returns documents as YAML, as `kfp` reads and uploads them."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True)


def compile_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    settings: KubeflowSettings,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None = None,
    notify: Notify | None = None,
) -> Package:
    """Compiles a TFX pipeline; see `RemoteTarget.compile_pipeline`."""
    accelerators.check_all(resources, settings.platform)
    by_tfx = targets_compiler.compile_with_tfx(
        pipeline, settings, resources, defaults, machines.launcher_settings, for_kubeflow=True
    )
    compiled = {**by_tfx.job["pipelineSpec"], "defaultPipelineRoot": settings.pipeline_root}
    for name, parameter in compiled["root"].get("inputDefinitions", {}).get("parameters", {}).items():
        # TFX loses the defaults. Each run must set a parameter that has none.
        if by_tfx.defaults.get(name) is not None:
            parameter.update(defaultValue=by_tfx.defaults[name], isOptional=True)
    pipeline_ir.replace_resolvers(
        compiled, by_tfx.resolvers, settings.image, settings.metadata_service, settings.pipeline_root
    )
    configs = {}
    for name, step in by_tfx.steps.items():
        if isinstance(step.component, FileBasedExampleGen):
            pipeline_ir.add_resolved_input(compiled, name, name_utils.get_full_name(step.component.driver_class))
        machine = step.machine
        retries = SPOT_RETRIES if machine.spot else targets_compiler.SMALL_RETRIES if step.waits else 0
        pipeline_ir.complete_step(
            compiled,
            name,
            machines.make_resource_spec(machine),
            {"maxRetryCount": retries, **BACKOFF} if retries else {},
            is_cached=step.is_cached,
            trains=step.trains,
            environment=machines.make_grace(machine) if step.trains else None,
        )
        queue = {QUEUE_LABEL: settings.queue} if settings.queue and step.trains else {}
        labels = {**settings.labels, **queue}
        configs[f"{name}{pipeline_ir.EXECUTOR}"] = machines.make_executor_config(machine, settings, labels)
    pipeline_ir.set_system_types(compiled)
    pipeline_ir.set_entrypoint(compiled)
    pipeline_ir.check(compiled)
    if notify:
        add_exit_step(compiled, notify, settings)
    # Steps that are not components: they resolve input files and the latest blessed
    # model, and send notifications.
    other = machines.make_executor_config(resources.get(DEFAULT, MachineSpec()), settings, settings.labels)
    executors = compiled["deploymentSpec"]["executors"]
    configs = {label: configs.get(label, other) for label, executor in executors.items() if "container" in executor}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": keep_set(**configs)}}}}
    return Package(compiled, platform, to_yaml(compiled, platform), len(executors), by_tfx.warnings)


def add_exit_step(pipeline: Document, notify: Notify, settings: KubeflowSettings) -> None:
    """Adds a step to a pipeline that runs when all others have ended, however they did.

    As kfp's `dsl.ExitHandler`, it puts the others into a pipeline within this one.
    Refuses a component with its name, or with that of the pipeline within.
    """
    if taken := {EXIT_STEP, pipeline_ir.WHOLE} & set(pipeline["components"]):
        raise ConfigurationError(f"{taken.pop()}: is the name of what notifications need; give the component another id")
    step_settings = kubeflow_step.Settings(
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
        "command": pipeline_ir.make_command(kubeflow_step.__name__),
        "args": ["--run-id", "{{$.inputs.parameters['run_id']}}", "--settings", step_settings.to_json()],
    }
    task = {
        "inputs": {"parameters": {"run_id": {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}}},
        "dependentTasks": [pipeline_ir.WHOLE],
        "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
    }
    pipeline_ir.add_task(pipeline, EXIT_STEP, run_id, {"container": container}, task)
