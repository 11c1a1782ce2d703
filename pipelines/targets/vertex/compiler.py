"""Compiles a pipeline for Vertex AI.

TFX's own KubeflowV2DagRunner makes the PipelineJob; this adds what it leaves out.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import base_component
from tfx.orchestration import pipeline as tfx_pipeline

from tfx_distribute.components.example_gen.names import WINDOW
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import DEFAULT, MachineSpec
from tfx_distribute.pipelines.targets import compiler as targets_compiler
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.target import Package
from tfx_distribute.pipelines.targets.vertex import machines as vertex_machines
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings

_VALUES = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}


def compile_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    settings: VertexSettings,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None = None,
) -> Package:
    """Compiles a TFX pipeline; see `RemoteTarget.compile_pipeline`.

    Its Trainers and Tuners get the target's launcher and checkpoint folder, unless they
    have their own. `default` of `resources` is the machine of all other components, and
    `Trainer` that of Trainers without their own, and of Tuners.
    """
    accelerators.check_all(resources, "vertex")
    name = pipeline.pipeline_info.pipeline_name
    make_launcher = functools.partial(vertex_machines.launcher_settings, name, resources, settings)
    checkpoint_dir = vertex_machines.checkpoint_dir(name, settings)
    by_tfx = targets_compiler.compile_with_tfx(
        pipeline, settings.image, resources, defaults, make_launcher, checkpoint_dir, schema_2_1=False
    )
    by_name = {component.id: component for component in pipeline.components}
    job, in_step, unversioned = by_tfx.job, by_tfx.in_step, by_tfx.unversioned
    spec = job["pipelineSpec"]
    pipeline_ir.check_references(spec)
    # TFX's own driver, which runs there before a step, does not know its spans.
    with_spans = [name for name, component in by_name.items() if WINDOW in getattr(component, "exec_properties", {})]
    uncached = [*unversioned, *with_spans, *targets_compiler.find_pushers(pipeline)]
    pipeline_ir.disable_cache(spec, uncached)
    pipeline_ir.set_schedule_time(spec, with_spans)
    pipeline_ir.guard_entrypoint(spec)
    pipeline_ir.set_system_types(spec)
    step_resources = {
        name: _resources(component, resources, name in in_step)
        for name, component in by_name.items()
        if isinstance(component, base_component.BaseComponent)
    }
    pipeline_ir.set_resources(spec, {name: value for name, value in step_resources.items() if value})
    pipeline_ir.set_requested_gpus(spec, in_step)
    waiting_steps = targets_compiler.launcher_only_trainers(by_name, in_step)
    pipeline_ir.set_retries(spec, waiting_steps, targets_compiler.SMALL_RETRIES)
    job["labels"] = {**job["labels"], **settings.labels}
    parameters = _values(spec, by_tfx.defaults)
    job["runtimeConfig"] = {"gcsOutputDirectory": settings.pipeline_root, "parameters": parameters}
    text = json.dumps(job, indent=2, sort_keys=True) + "\n"
    num_steps = len(spec["root"]["dag"]["tasks"])
    return Package(job, {}, text, num_steps, targets_compiler.warn_of_uncached(unversioned))


def _resources(
    component: base_component.BaseComponent, resources: Mapping[str, MachineSpec], trains_in_step: bool
) -> dict[str, Any]:
    """Returns the ResourceSpec of a component's step; empty for none."""
    own_spec = targets_compiler.machine_of_step(component, resources, trains_in_step)
    machine = own_spec or resources.get(DEFAULT) or MachineSpec()
    vertex_machines.check_step(targets_compiler.name_of_machine(component, resources) if own_spec else DEFAULT, machine)
    return vertex_machines.make_resource_spec(machine)


def _values(spec: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of pipeline parameters as values of the job.

    TFX drops them, since the schema 2.0.0 has no defaults.
    """
    declared = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    return {
        name: {_VALUES[parameter["type"]]: defaults[name]}
        for name, parameter in declared.items()
        if defaults.get(name) is not None
    }
