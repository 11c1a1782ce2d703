"""Compiles a pipeline for open-source Kubeflow Pipelines: TFX's own KubeflowV2DagRunner, then what `ir` makes of that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from google.protobuf import json_format
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.dsl.components.base import base_component, base_node
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.utils import name_utils

from tfx_distribute.components.launchers.tfjob.manifest import QUEUE_LABEL
from tfx_distribute.components.trainer.component import Trainer
from tfx_distribute.pipelines.runners import compiler as runners_compiler
from tfx_distribute.pipelines.runners import pipeline_ir
from tfx_distribute.pipelines.runners.kubeflow import pods
from tfx_distribute.pipelines.runners.kubeflow import target as kubeflow_target
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.machines import DEFAULT, PARAMETER_SERVER, SMALL, MachineSpec
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.targets import KubeflowTarget

SPOT_RETRIES = 3  # of a step whose machine may be taken away


@dataclass(frozen=True)
class Package:
    """A compiled pipeline.

    Attributes:
      pipeline: KFP's PipelineSpec.
      platform: The platform spec: where each step runs.
    """

    pipeline: Mapping[str, Any]
    platform: Mapping[str, Any]

    @property
    def num_steps(self) -> int:
        """Steps of the pipeline."""
        return len(self.pipeline["root"]["dag"]["tasks"])

    def to_text(self) -> str:
        """Both documents, as `kfp` reads and uploads them; the same pipeline gives the same text."""
        return yaml.dump_all([self.pipeline, self.platform], Dumper=_Dumper, sort_keys=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def compile_spec(spec: PipelineSpec, module: user_module.Module, enable_cache: bool = True) -> Package:
    """Compiles a pipeline file.

    Args:
      spec: What the pipeline is; the values of its parameters become their defaults.
      module: The user's module, which the image holds.
      enable_cache: Whether steps whose inputs have not changed take their outputs from an earlier run.

    Raises:
      ConfigurationError: It cannot run there.
    """
    target = kubeflow_target.validate_target(spec)
    with runners_compiler.built_pipeline(spec, module, target.pipeline_root, target.image, enable_cache) as (
        pipeline,
        defaults,
    ):
        return compile_pipeline(pipeline, target, spec.resources, defaults)


def compile_pipeline(
    pipeline: tfx_pipeline.Pipeline,
    target: KubeflowTarget,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None = None,
) -> Package:
    """Compiles a TFX pipeline, of a pipeline file or written by hand.

    Its Trainers are told of the target where training runs, and keep their states there, unless they have been told.

    Args:
      pipeline: The pipeline; its components import from what the image holds.
      target: Where it runs.
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
    launcher = kubeflow_target.launcher(name, resources, target)
    with runners_compiler.configured_trainers(
        pipeline, launcher, kubeflow_target.checkpoint_dir(name, target), defaults
    ) as in_step:
        compiled = runners_compiler.compile_with_tfx(pipeline, target.image, schema_2_1=True)["pipelineSpec"]
    compiled["defaultPipelineRoot"] = target.pipeline_root
    compiled = pipeline_ir.with_defaults(compiled, defaults)
    compiled = pipeline_ir.with_resolved_input(compiled, _drivers(by_name))
    # Nobody looks whether what these read has changed.
    queries = [name for name, component in by_name.items() if isinstance(component, QueryBasedExampleGen)]
    compiled = pipeline_ir.without_cache(compiled, queries)
    compiled = pipeline_ir.without_resolvers(compiled, target.image, target.metadata_service, target.pipeline_root)
    compiled = pipeline_ir.with_entrypoint(compiled)
    steps = {
        name: _step(component, target, resources, name in in_step)
        for name, component in by_name.items()
        if isinstance(component, base_component.BaseComponent)
    }
    compiled = pipeline_ir.with_resources(compiled, {name: step.resources for name, step in steps.items() if step.resources})
    compiled = pipeline_ir.with_retries(compiled, [name for name, step in steps.items() if step.spot], SPOT_RETRIES)
    compiled = pipeline_ir.with_retries(
        compiled, runners_compiler.launcher_only_trainers(by_name, in_step), runners_compiler.SMALL_RETRIES
    )
    compiled = pipeline_ir.with_legal_names(compiled)
    pipeline_ir.check(compiled)
    # Steps that are not TFX's: those that look at input files, and for the latest blessed model.
    other = pods.make_executor_config(
        pods.make_machine(resources.get(DEFAULT, MachineSpec()), target.platform), target, target.labels
    )
    configs = {
        label: steps[name].config if (name := label.removesuffix(pipeline_ir.EXECUTOR)) in steps else other
        for label, executor in compiled["deploymentSpec"]["executors"].items()
        if "container" in executor
    }
    configs = {label: config for label, config in configs.items() if config}
    return Package(compiled, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": configs}}}})


@dataclass(frozen=True)
class _Step:
    """Where a component's step runs.

    Attributes:
      resources: Its ResourceSpec; empty for none.
      config: Its entry in the platform spec.
      spot: Whether its machine may be taken away.
    """

    resources: dict[str, Any]
    config: dict[str, Any]
    spot: bool


def _step(
    component: base_component.BaseComponent,
    target: KubeflowTarget,
    resources: Mapping[str, MachineSpec],
    trains_in_step: bool,
) -> _Step:
    trains = isinstance(component, Trainer)
    given = SMALL if trains and not trains_in_step else resources.get(component.id)
    node = given or resources.get(DEFAULT) or MachineSpec()
    machine = pods.make_machine(node, target.platform)
    of_step = pods.make_resource_spec(machine)
    if given is None and component.platform_config:  # TFX's own way, which it forgets for an ExampleGen of files
        of_step = pods.complete_resource_spec(json_format.MessageToDict(component.platform_config))
    queue = {QUEUE_LABEL: target.queue} if target.queue and trains and trains_in_step else {}
    return _Step(of_step, pods.make_executor_config(machine, target, {**target.labels, **queue}), node.spot)


def _drivers(components: Mapping[str, base_node.BaseNode]) -> dict[str, str]:
    """Name of each ExampleGen of files -> path of its driver."""
    return {
        name: name_utils.get_full_name(component.driver_class)
        for name, component in components.items()
        if isinstance(component, FileBasedExampleGen)
    }
