"""Holds what the compilers of all targets share.

That is TFX's own KubeflowV2DagRunner, and the settings of the Trainer for the target.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, base_node
from tfx.dsl.components.common import resolver
from tfx.dsl.input_resolution.strategies import latest_blessed_model_strategy
from tfx.orchestration import data_types
from tfx.orchestration import pipeline as pipeline_lib
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.types import standard_artifacts

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.launcher import LauncherSettings
from tfx_distribute.components.pusher.component import Pusher
from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.trainer.component import Trainer
from tfx_distribute.components.tuner.component import Tuner
from tfx_distribute.pipelines.spec.machines import (
    DEFAULT,
    PARAMETER_SERVER,
    TRAINER,
    TRAINER_STEP,
    MachineSpec,
    machine_of,
    machine_of_waiting_step,
)
from tfx_distribute.pipelines.targets import pipeline_ir, tfx_pipeline
from tfx_distribute.pipelines.targets.settings import RemoteSettings
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

# Components that train: in their steps, or on the machines that a launcher starts.
TRAINING = (Trainer, Tuner)

_NAME = re.compile("[a-z0-9][a-z0-9-]{0,127}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9-]+")
SMALL_RETRIES = 1  # of a step that waits while other machines train


@dataclass(frozen=True)
class Step:
    """The step of a component.

    `machine_name` is the key of `resources` that has its machine. One that `waits` does
    so while other machines train; to try it again is safe, since it finds the running
    training. One that is not cached depends on more than its inputs.
    """

    component: base_component.BaseComponent
    machine_name: str
    machine: MachineSpec
    trains: bool
    waits: bool
    is_cached: bool


@dataclass(frozen=True)
class Compiled:
    """A pipeline that TFX has compiled.

    `job` is the PipelineJob, JSON. `defaults` has the default of each pipeline
    parameter, and `steps` the step of each task, by name. `resolvers` are ids.
    """

    job: dict[str, Any]
    defaults: dict[str, Any]
    steps: dict[str, Step]
    resolvers: list[str]
    warnings: tuple[str, ...]


def compile_with_tfx(
    pipeline: pipeline_lib.Pipeline,
    settings: RemoteSettings,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None,
    make_launcher: Callable[..., LauncherSettings],
    for_kubeflow: bool,
) -> Compiled:
    """Compiles a pipeline with TFX, and its Trainers with the settings of the target.

    `make_launcher` turns the name of the pipeline, `resources`, `settings` and a key of
    `resources` into the launcher that trains there. With `for_kubeflow`, the schema is
    2.1.0, and the names of tasks are those that Argo accepts; else it is the schema
    2.0.0 of Vertex AI. `defaults` replace those of the RuntimeParameters.
    """
    components = {component.id: component for component in pipeline.components}
    _check_resources(resources, components)
    merged = _merge_defaults(components, defaults)
    name, root = pipeline.pipeline_info.pipeline_name, pipeline.pipeline_info.pipeline_root
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"pipeline_name: Kubeflow Pipelines and Vertex AI take lower-case letters, digits and hyphens, at most 128, not "
            f"{name!r}; write {re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')[:128] or 'another'!r}"
        )
    for node in pipeline.components:
        _check_user_module(node, root)
        if isinstance(node, resolver.Resolver):
            _check_producers(node, pipeline.components)
    make_launcher = functools.partial(make_launcher, name, resources, settings)
    checkpoint_dir = settings.checkpoint_dir(name)
    with _unchanged(pipeline):
        steps, warnings = [], []
        for component in pipeline.components:
            if not isinstance(component, base_component.BaseComponent):
                continue
            trains = isinstance(component, TRAINING)
            waits = trains and not _configure_trainer(component, resources, make_launcher, checkpoint_dir, merged)
            # A cache does not know which version is served: a return to an earlier
            # training would leave the later model there. Our executor of the Pusher
            # pushes no model that is served already.
            is_cached = getattr(component.executor_spec, "class_path", None) != Pusher.EXECUTOR_SPEC.class_path
            data_version = getattr(component, "data_version", "")
            if _has_no_files(component) and data_version:
                # That of a pipeline file has the code in its cache key already.
                if tfx_pipeline.FINGERPRINT not in component.spec.exec_properties:
                    tfx_pipeline.add_to_cache_key(component, tfx_pipeline.fingerprint_example_gen(component))
            elif _has_no_files(component):
                is_cached = False
                warnings.append(
                    f"{component.id}: declares no data_version, so that it runs each time, and everything after it too; if "
                    "you know when its data change, write a data_version in its class (docs/data.md)"
                )
            key = TRAINER_STEP if waits else _name_of_machine(component, resources)
            machine = machine_of_waiting_step(resources) if waits else machine_of(resources, key)
            steps.append(Step(component, key, machine, trains and not waits, waits, is_cached))
        if for_kubeflow:
            for component, name in zip(pipeline.components, _make_legal_names(list(components)), strict=True):
                component.with_id(name)
        resolvers = {each.id: each for each in pipeline.components if isinstance(each, resolver.Resolver)}
        job = _compile(pipeline, settings.image, for_kubeflow)
        upstream = {name: sorted(other.id for other in node.upstream_nodes) for name, node in resolvers.items()}
        pipeline_ir.restore_order_of_resolvers(job["pipelineSpec"], upstream)
        return Compiled(job, merged, {step.component.id: step for step in steps}, list(resolvers), tuple(warnings))


def _make_legal_names(names: Sequence[str]) -> list[str]:
    """Returns a unique name with letters, digits and hyphens for each name.

    None of them is the name of a step that the backend adds itself, such as a driver.
    """
    legal_names: dict[str, str] = {}
    taken = {"root", "executor"}
    # Legal names come first, so that they are kept.
    for name in sorted(names, key=lambda name: (bool(_ILLEGAL.search(name)), name)):
        legal = base = _ILLEGAL.sub("-", name).strip("-") or "node"
        number = 2
        while legal in taken:
            legal, number = f"{base}-{number}", number + 1
        legal_names[name] = legal
        taken |= {legal, f"{legal}-driver"}
    return [legal_names[name] for name in names]


def _compile(pipeline: pipeline_lib.Pipeline, image: str, schema_2_1: bool) -> dict[str, Any]:
    """Returns the PipelineJob that TFX makes of a pipeline, JSON."""
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=schema_2_1)
    # The runner checks that the name fits the schema, but writes no file.
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, output_filename="job.yaml" if schema_2_1 else "job.json")
    try:
        return dict(runner.run(pipeline, write_out=False))
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "the pipeline has something that TFX cannot compile for Kubeflow Pipelines and Vertex AI "
            f"({type(error).__name__}: {error}); it knows no subpipelines, no ForEach, no InfraValidator, no unions of "
            "channels, no resolvers of spans and no conditions on values: leave these out, or run the pipeline with "
            "LocalDagRunner"
        ) from error


def _check_user_module(component: base_node.BaseNode, root: str) -> None:
    """Checks that TFX can write its package of a `module_file` to the root."""
    dependencies = getattr(component, "_pip_dependencies", ())
    has_file = any(
        isinstance(each, udf_utils.UserModuleFilePipDependency) and component.exec_properties.get(each.module_file_key)
        for each in dependencies
    )
    if has_file and not root.startswith("gs://"):
        problem = "which it cannot" if "://" in root else "where no step finds it"
        raise ConfigurationError(
            f"{component.id}.module_file: TFX would write a package of it to the pipeline_root {root} when it compiles, "
            f"{problem}; name the function instead, such as build_model='model.build_model' or "
            "preprocessing_fn='model.preprocessing_fn', and have the module in the image; or make the pipeline with a "
            "pipeline_root at gs://"
        )


def _check_producers(node: resolver.Resolver, components: Sequence[base_node.BaseNode]) -> None:
    """Checks that a resolver asks for no producer, if there are several.

    TFX leaves it out: the resolver would take the latest artifact of any. That of the
    latest blessed model takes the model that has the latest blessing.
    """
    finds_blessed = node._strategy_class is latest_blessed_model_strategy.LatestBlessedModelStrategy
    for key, channel in node.raw_inputs.items():
        producer = getattr(channel, "producer_component_id", None)
        found = standard_artifacts.ModelBlessing if finds_blessed else channel.type
        makers = sorted(
            component.id
            for component in components
            if not isinstance(component, resolver.Resolver)
            and any(issubclass(output.type, found) for output in component.outputs.values())
        )
        if producer and len(makers) > 1:
            raise ConfigurationError(
                f"{node.id}: {key} is that of {producer} alone, but resolvers on Kubeflow Pipelines and Vertex AI take the "
                f"latest {found.TYPE_NAME} of {', '.join(makers)}; leave producer_component_id out, or make a pipeline for "
                "each"
            )


@contextlib.contextmanager
def _unchanged(pipeline: pipeline_lib.Pipeline) -> Iterator[None]:
    """Restores the ids and parameters of the user's components at the end."""
    before = [(component, component.id, dict(component.exec_properties)) for component in pipeline.components]
    try:
        yield
    finally:
        for component, name, properties in before:
            component.with_id(name)
            if isinstance(component, base_component.BaseComponent):
                component.spec.exec_properties.clear()
                component.spec.exec_properties.update(properties)


def _configure_trainer(
    trainer: base_component.BaseComponent,
    resources: Mapping[str, MachineSpec],
    make_launcher: Callable[[str], LauncherSettings],
    checkpoint_dir: str | None,
    defaults: Mapping[str, Any],
) -> bool:
    """Sets `launcher` and `checkpoint_dir` of a Trainer or Tuner where unset.

    A `checkpoint_dir` of None is the Trainer's own default. Returns True if it trains
    in its own step. The defaults of parameters decide this, so that each step gets the
    machine that it needs.
    """
    properties = trainer.spec.exec_properties
    settings = make_launcher(_name_of_machine(trainer, resources))
    runtime = data_types.RuntimeParameter
    values: dict[str, Any] = {
        name: defaults.get(value.name) if isinstance(value, runtime) else value for name, value in properties.items()
    }
    launcher = registry.from_json(values["launcher"]) if values.get("launcher") else settings
    trains_in_step = not launcher.runs_remotely(_read_parameters(trainer, values).distribution)
    if not values.get("launcher"):
        # A small step never trains, even in a run that asks for one process.
        properties["launcher"] = registry.to_json(settings if trains_in_step else settings.elsewhere())
    if checkpoint_dir and not values.get("checkpoint_dir"):
        # Two that train alike would continue each other's state. A Trainer has to find
        # its state when another one is added, too; searches are apart anyway.
        is_shared = isinstance(trainer, Tuner) or trainer.id == TRAINER
        properties["checkpoint_dir"] = checkpoint_dir if is_shared else f"{checkpoint_dir}/{trainer.id}"
    return trains_in_step


def _read_parameters(trainer: base_component.BaseComponent, values: Mapping[str, Any]) -> job_builder.TrainingParameters:
    """Returns the parameters of a Trainer or Tuner with their defaults, in `values`.

    They are checked together unless a RuntimeParameter has no default: each run gives
    it one then.
    """
    try:
        parameters = job_builder.training_parameters(values)
    except ValueError as error:
        raise ConfigurationError(f"{trainer.id}: the default of a parameter is wrong: {error}") from error
    given = trainer.spec.exec_properties.items()
    if not any(isinstance(value, data_types.RuntimeParameter) and values[name] is None for name, value in given):
        strategy_table.check(*parameters)
    return parameters


def _has_no_files(component: base_component.BaseComponent) -> bool:
    """Returns True for an ExampleGen of other data, whose changes TFX does not see."""
    makes_examples = any(issubclass(channel.type, standard_artifacts.Examples) for channel in component.outputs.values())
    return makes_examples and not component.inputs and not isinstance(component, FileBasedExampleGen)


def _name_of_machine(component: base_node.BaseNode, resources: Mapping[str, MachineSpec]) -> str:
    """Returns the key of `resources` that has the machine of a component."""
    if component.id in resources:
        return component.id
    return TRAINER if isinstance(component, TRAINING) and TRAINER in resources else DEFAULT


def _check_resources(resources: Mapping[str, MachineSpec], components: Mapping[str, base_node.BaseNode]) -> None:
    """Checks that machines are set only for components that the pipeline has."""
    trains = any(isinstance(component, TRAINING) for component in components.values())
    allowed = {*components, DEFAULT, PARAMETER_SERVER, TRAINER_STEP, *([TRAINER] if trains else [])}
    for name in resources:
        if name not in allowed:
            raise ConfigurationError(f"resources.{name}: the pipeline has no such component; it has {', '.join(components)}")
        if isinstance(components.get(name), Tuner):
            raise ConfigurationError(
                f"resources.{name}: trials train on the machines of the Trainer; write resources.Trainer instead"
            )


def _merge_defaults(components: Mapping[str, base_node.BaseNode], defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the default of each pipeline parameter, by name.

    `defaults` replace those of the RuntimeParameters. Raises a ConfigurationError if
    the pipeline has no such parameter, or several defaults of one.
    """
    own: dict[str, Any] = {}
    given = dict(defaults or {})
    for component in components.values():
        for value in component.exec_properties.values():
            if isinstance(value, data_types.RuntimeParameter):
                first = own.get(value.name)
                own[value.name] = value.default if first is None else first
                if value.name not in given and value.default not in (None, own[value.name]):
                    raise ConfigurationError(
                        f"RuntimeParameter {value.name!r}: is one parameter of the pipeline, with the defaults {first!r} "
                        f"and {value.default!r}; write one default, or two names"
                    )
    for name in given:
        if name not in own:
            raise ConfigurationError(
                f"defaults: the pipeline has no RuntimeParameter {name!r}; it has {', '.join(own) or 'none'}"
            )
    return own | given
