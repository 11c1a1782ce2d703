"""Compiles a pipeline for Vertex AI: TFX's own KubeflowV2DagRunner, whose PipelineJob it takes, and what that leaves out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from tfx.components.example_gen.component import QueryBasedExampleGen
from tfx.dsl.components.base import base_component
from tfx.orchestration import pipeline as tfx_pipeline

from tfx_distribute.components.trainer.component import Trainer
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.runners import compiler as runners_compiler
from tfx_distribute.pipelines.runners import pipeline_ir
from tfx_distribute.pipelines.runners.vertex import machines as vertex_machines
from tfx_distribute.pipelines.runners.vertex import target as vertex_target
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.machines import DEFAULT, PARAMETER_SERVER, SMALL, TRAINER, MachineSpec
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.targets import VertexTarget
from tfx_distribute.trainer_module.errors import ConfigurationError

_VALUES = {"INT": "intValue", "DOUBLE": "doubleValue", "STRING": "stringValue"}


@dataclass(frozen=True)
class Package:
    """A compiled pipeline.

    Attributes:
      job: Vertex AI's PipelineJob, JSON, with KFP's PipelineSpec of schema 2.0.0 in it.
    """

    job: Mapping[str, Any]

    @property
    def num_steps(self) -> int:
        """Steps of the pipeline."""
        return len(self.job["pipelineSpec"]["root"]["dag"]["tasks"])

    def to_text(self) -> str:
        """The document, as the SDK reads it; the same pipeline gives the same text."""
        return json.dumps(self.job, indent=2, sort_keys=True) + "\n"


def compile_spec(spec: PipelineSpec, module: user_module.Module, enable_cache: bool = True) -> Package:
    """Compiles a pipeline file.

    Args:
      spec: What the pipeline is; the values of its parameters become their defaults.
      module: The user's module, which the image holds.
      enable_cache: Whether steps whose inputs have not changed take their outputs from an earlier run.

    Raises:
      ConfigurationError: It cannot run there.
    """
    target = vertex_target.validate_target(spec)
    with runners_compiler.built_pipeline(spec, module, target.pipeline_root, target.image, enable_cache) as (
        pipeline,
        defaults,
    ):
        return compile_pipeline(pipeline, target, spec.resources, defaults)


def compile_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    target: VertexTarget,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None = None,
) -> Package:
    """Compiles a TFX pipeline, of a pipeline file or written by hand.

    Its Trainers are told of the target where training runs, and keep their states there, unless they have been told.

    Args:
      pipeline: The pipeline; its components import from what the image holds.
      target: Where it runs, with its project and region.
      resources: Component -> machine; `default` for all that are not there.
      defaults: Defaults of pipeline parameters; default those of its RuntimeParameters.

    Raises:
      ConfigurationError: It cannot run there.
    """
    by_name = {component.id: component for component in pipeline.components}
    runners_compiler.check_resources(resources, by_name, PARAMETER_SERVER)
    if defaults is None:
        defaults = runners_compiler.runtime_defaults(by_name)
    name = pipeline.pipeline_info.pipeline_name
    launcher = vertex_target.launcher(name, resources, target)
    with runners_compiler.configured_trainers(
        pipeline, launcher, vertex_target.checkpoint_dir(name, target), defaults
    ) as in_step:
        job = runners_compiler.compile_with_tfx(pipeline, target.image, schema_2_1=False)
    # Nobody looks whether what these read has changed.
    queries = [name for name, component in by_name.items() if isinstance(component, QueryBasedExampleGen)]
    spec = pipeline_ir.with_guarded_entrypoint(pipeline_ir.without_cache(job["pipelineSpec"], queries))
    of_steps = {
        name: _resources(component, resources, name in in_step)
        for name, component in by_name.items()
        if isinstance(component, base_component.BaseComponent)
    }
    spec = pipeline_ir.with_resources(spec, {name: given for name, given in of_steps.items() if given})
    job["pipelineSpec"] = pipeline_ir.with_retries(
        spec, runners_compiler.launcher_only_trainers(by_name, in_step), runners_compiler.SMALL_RETRIES
    )
    job["labels"] = {**job["labels"], **target.labels}
    job["runtimeConfig"] = {"gcsOutputDirectory": target.pipeline_root, "parameters": _values(job["pipelineSpec"], defaults)}
    return Package(job)


def _resources(
    component: base_component.BaseComponent, resources: Mapping[str, MachineSpec], trains_here: bool
) -> dict[str, Any]:
    """The ResourceSpec of a component's step; empty for none."""
    given = SMALL if isinstance(component, Trainer) and not trains_here else resources.get(component.id)
    if given is None and component.platform_config:  # TFX's own way, which it forgets for an ExampleGen of files
        return dict(json_format.MessageToDict(component.platform_config))
    node = given or resources.get(DEFAULT) or MachineSpec()
    if reason := vertex_target.unsupported_in_step(node):
        raise ConfigurationError(
            f"resources.{component.id if given else DEFAULT}: a step has no {reason}; only training has: write it under "
            f"resources.{TRAINER} or resources.{PARAMETER_SERVER}"
        )
    accelerators.check(node.accelerator, node.accelerator_count, node.topology, "vertex")
    return vertex_machines.make_resource_spec(node)


def _values(spec: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of pipeline parameters, which TFX loses, as values of the job: its schema has no defaults."""
    declared = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    return {
        name: {_VALUES[parameter["type"]]: defaults[name]}
        for name, parameter in declared.items()
        if defaults.get(name) is not None
    }
