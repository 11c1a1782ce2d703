"""Compiles a pipeline for open-source Kubeflow Pipelines.

TFX's own KubeflowV2DagRunner compiles it; `pipeline_ir` adapts the result.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import base_component, base_node
from tfx.orchestration import pipeline as tfx_pipeline
from tfx.utils import name_utils

from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL
from tfx_distribute.pipelines.machines import accelerators
from tfx_distribute.pipelines.spec.machines import DEFAULT, MachineSpec
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets import compiler as targets_compiler
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow import exit_step, pods, trainer_settings
from tfx_distribute.pipelines.targets.kubeflow.machines import Document, make_grace
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.targets.target import Package

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
    spec: PipelineSpec | None = None,
) -> Package:
    """Compiles a TFX pipeline; see `RemoteTarget.compile_pipeline`.

    Its Trainers and Tuners get the target's launcher and checkpoint folder, unless they
    have their own. `default` of `resources` is the machine of all other components, and
    `Trainer` that of Trainers without their own, and of Tuners.
    """
    accelerators.check_all(resources, settings.platform)
    name = pipeline.pipeline_info.pipeline_name
    make_launcher = functools.partial(trainer_settings.launcher, name, resources, settings)
    checkpoint_dir = trainer_settings.checkpoint_dir(name, settings)
    by_tfx = targets_compiler.compile_with_tfx(
        pipeline, settings.image, resources, defaults, make_launcher, checkpoint_dir, schema_2_1=True
    )
    by_name = {component.id: component for component in pipeline.components}
    in_step, unversioned = by_tfx.in_step, by_tfx.unversioned
    compiled = {**by_tfx.job["pipelineSpec"], "defaultPipelineRoot": settings.pipeline_root}
    pipeline_ir.set_defaults(compiled, by_tfx.defaults)
    pipeline_ir.add_resolved_input(compiled, _drivers(by_name))
    pipeline_ir.disable_cache(compiled, [*unversioned, *targets_compiler.find_pushers(pipeline)])
    pipeline_ir.replace_resolvers(compiled, settings.image, settings.metadata_service, settings.pipeline_root)
    pipeline_ir.set_system_types(compiled)
    pipeline_ir.set_entrypoint(compiled)
    steps = {
        name: _step(component, settings, resources, name in in_step)
        for name, component in by_name.items()
        if isinstance(component, base_component.BaseComponent)
    }
    pipeline_ir.set_resources(compiled, {name: step.resources for name, step in steps.items() if step.resources})
    pipeline_ir.set_requested_gpus(compiled, in_step)
    pipeline_ir.set_environment(compiled, {name: steps[name].grace for name in in_step})
    spot_steps = [name for name, step in steps.items() if step.spot]
    waiting_steps = targets_compiler.launcher_only_trainers(by_name, in_step)
    pipeline_ir.set_retries(compiled, waiting_steps, targets_compiler.SMALL_RETRIES, **BACKOFF)
    pipeline_ir.set_retries(compiled, spot_steps, SPOT_RETRIES, **BACKOFF)
    compiled = pipeline_ir.with_legal_names(compiled)
    pipeline_ir.check(compiled)
    if spec and spec.notify:
        exit_step.add(compiled, spec, spec.notify, settings)
    # Steps that are not components: they resolve input files and the latest blessed
    # model, and send notifications.
    other = pods.make_executor_config(resources.get(DEFAULT, MachineSpec()), settings, settings.labels)
    configs = {
        label: steps[name].config if (name := label.removesuffix(pipeline_ir.EXECUTOR)) in steps else other
        for label, executor in compiled["deploymentSpec"]["executors"].items()
        if "container" in executor
    }
    configs = {label: config for label, config in configs.items() if config}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": configs}}}}
    num_steps = len(compiled["deploymentSpec"]["executors"])
    return Package(
        compiled, platform, to_yaml(compiled, platform), num_steps, targets_compiler.warn_of_uncached(unversioned)
    )


@dataclass(frozen=True)
class _Step:
    """Machine of a component's step, as the documents of Kubeflow describe it.

    `resources` is the step's ResourceSpec, `config` its entry in the platform spec, and
    `grace` the environment variable with the time that it has to end in.
    """

    resources: dict[str, Any]
    config: dict[str, Any]
    spot: bool
    grace: dict[str, str]


def _step(
    component: base_component.BaseComponent,
    settings: KubeflowSettings,
    resources: Mapping[str, MachineSpec],
    trains_in_step: bool,
) -> _Step:
    trains = isinstance(component, targets_compiler.TRAINING)
    own_spec = targets_compiler.machine_of_step(component, resources, trains_in_step)
    machine = own_spec or resources.get(DEFAULT, MachineSpec())
    queue = {QUEUE_LABEL: settings.queue} if settings.queue and trains and trains_in_step else {}
    config = pods.make_executor_config(machine, settings, {**settings.labels, **queue})
    return _Step(pods.make_resource_spec(machine), config, machine.spot, make_grace(machine))


def _drivers(components: Mapping[str, base_node.BaseNode]) -> dict[str, str]:
    """Returns the dotted path of each file-based ExampleGen's driver, by its id."""
    return {
        name: name_utils.get_full_name(component.driver_class)
        for name, component in components.items()
        if isinstance(component, FileBasedExampleGen)
    }
