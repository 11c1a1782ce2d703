"""Compiles a pipeline for Vertex AI.

TFX's own KubeflowV2DagRunner makes the PipelineJob; this adds what it leaves out.
"""

import json
from collections.abc import Mapping
from typing import Any

from tfx.orchestration import pipeline as tfx_pipeline

from tfx_distribute.components.example_gen.names import SCHEDULED_AT, WINDOW
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.spec.pipeline import Notify
from tfx_distribute.pipelines.targets import compiler as targets_compiler
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.target import Package
from tfx_distribute.pipelines.targets.vertex import machines as vertex_machines
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings

# Wraps TFX's entrypoint: it fails if user code calls `sys.exit(0)`.
ENTRYPOINT = "tfx_distribute.components.container.vertex"
_VALUES = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}


def compile_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    settings: VertexSettings,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None = None,
    notify: Notify | None = None,
) -> Package:
    """Compiles a TFX pipeline; see `RemoteTarget.compile_pipeline`."""
    accelerators.check_all(resources, "vertex")
    by_tfx = targets_compiler.compile_with_tfx(
        pipeline, settings, resources, defaults, vertex_machines.launcher_settings, for_kubeflow=False
    )
    job, spec = by_tfx.job, by_tfx.job["pipelineSpec"]
    pipeline_ir.check_references(spec)
    for name, step in by_tfx.steps.items():
        machine = step.machine
        vertex_machines.check_step(step.machine_name, machine)
        # TFX's own driver, which runs there before a step, does not know its spans.
        has_spans = WINDOW in step.component.exec_properties
        if has_spans:
            task, component, _ = pipeline_ir.get_step(spec, name)
            component["inputDefinitions"]["parameters"][SCHEDULED_AT] = {"type": "STRING"}
            time = {"stringValue": pipeline_ir.SCHEDULE_TIME}
            task["inputs"]["parameters"][SCHEDULED_AT] = {"runtimeValue": {"constantValue": time}}
        pipeline_ir.complete_step(
            spec,
            name,
            vertex_machines.make_resource_spec(machine),
            {"maxRetryCount": targets_compiler.SMALL_RETRIES} if step.waits else {},
            is_cached=step.is_cached and not has_spans,
            trains=step.trains,
        )
    for _, container in pipeline_ir.iterate_tfx_containers(spec):
        container["command"] = pipeline_ir.make_command(ENTRYPOINT)
    pipeline_ir.set_system_types(spec)
    job["labels"] = {**job["labels"], **settings.labels}
    # TFX drops the defaults: the schema 2.0.0 has none. They are values of the job.
    declared = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    given = {name: value for name, value in by_tfx.defaults.items() if name in declared and value is not None}
    parameters = {name: {_VALUES[declared[name]["type"]]: value} for name, value in given.items()}
    job["runtimeConfig"] = {"gcsOutputDirectory": settings.pipeline_root, "parameters": parameters}
    text = json.dumps(job, indent=2, sort_keys=True) + "\n"
    return Package(job, {}, text, len(spec["root"]["dag"]["tasks"]), by_tfx.warnings)
