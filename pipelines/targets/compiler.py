"""Holds what the compilers of all targets share.

That is TFX's own KubeflowV2DagRunner, and the settings of the Trainer for the target.
"""

import contextlib
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
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.machines import (
    DEFAULT,
    PARAMETER_SERVER,
    TRAINER,
    TRAINER_STEP,
    MachineSpec,
    machine_of_waiting_step,
)
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.targets import pipeline_ir, tfx_pipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table

# Components that train: in their steps, or on the machines that a launcher starts.
TRAINING = (Trainer, Tuner)

_NAME = re.compile("[a-z0-9][a-z0-9-]{0,127}")
SMALL_RETRIES = 1  # of a step that waits while other machines train


@dataclass(frozen=True)
class Compiled:
    """A pipeline that TFX has compiled.

    Attributes:
      job: The PipelineJob, JSON.
      defaults: Default of each pipeline parameter.
      in_step: Names of the components that train in their own step.
      unversioned: Names of the ExampleGens whose data may change unnoticed.
    """

    job: dict[str, Any]
    defaults: dict[str, Any]
    in_step: list[str]
    unversioned: list[str]


def compile_with_tfx(
    pipeline: pipeline_lib.Pipeline,
    image: str,
    resources: Mapping[str, MachineSpec],
    defaults: Mapping[str, Any] | None,
    make_launcher: Callable[[str], LauncherSettings],
    checkpoint_dir: str | None,
    schema_2_1: bool,
) -> Compiled:
    """Compiles a pipeline with TFX, and its Trainers with the settings of the target.

    `schema_2_1` is True for the schema 2.1.0 of open-source Kubeflow Pipelines, False
    for 2.0.0 of Vertex AI; see `merge_defaults` and `_configure_trainers` for others.
    """
    components = {component.id: component for component in pipeline.components}
    check_resources(resources, components)
    merged = merge_defaults(components, defaults)
    with _unchanged(pipeline):
        in_step = _configure_trainers(pipeline, resources, make_launcher, checkpoint_dir, merged)
        unversioned = _fingerprint_queries(pipeline)
        return Compiled(_compile(pipeline, image, schema_2_1), merged, in_step, unversioned)


def _compile(pipeline: pipeline_lib.Pipeline, image: str, schema_2_1: bool) -> dict[str, Any]:
    """Returns the PipelineJob that TFX makes of a pipeline, JSON."""
    name, root = pipeline.pipeline_info.pipeline_name, pipeline.pipeline_info.pipeline_root
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"pipeline_name: Kubeflow Pipelines and Vertex AI take lower-case letters, digits and hyphens, at most 128, not "
            f"{name!r}; write {re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')[:128] or 'another'!r}"
        )
    for component in pipeline.components:
        _check_user_module(component, root)
        if isinstance(component, resolver.Resolver):
            _check_producers(component, pipeline.components)
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=schema_2_1)
    # The runner checks that the name fits the schema, but writes no file.
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, output_filename="job.yaml" if schema_2_1 else "job.json")
    try:
        job = dict(runner.run(pipeline, write_out=False))
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "the pipeline has something that TFX cannot compile for Kubeflow Pipelines and Vertex AI "
            f"({type(error).__name__}: {error}); it knows no subpipelines, no ForEach, no InfraValidator, no unions of "
            "channels, no resolvers of spans and no conditions on values: leave these out, or run the pipeline with "
            "LocalDagRunner"
        ) from error
    resolvers = [component for component in pipeline.components if isinstance(component, resolver.Resolver)]
    upstream = {node.id: sorted(other.id for other in node.upstream_nodes) for node in resolvers}
    pipeline_ir.restore_order_of_resolvers(job["pipelineSpec"], upstream)
    return job


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
        producer, found = getattr(channel, "producer_component_id", None), channel.type
        if finds_blessed:
            found = standard_artifacts.ModelBlessing
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
def built_pipeline(
    spec: PipelineSpec, module: user_module.Module, pipeline_root: str, image: str, enable_cache: bool
) -> Iterator[tuple[pipeline_lib.Pipeline, dict[str, Any]]]:
    """Builds the TFX pipeline of a pipeline file, with its module importable.

    Yields the pipeline, and the defaults of its parameters by name.
    """
    push_directory = spec.push.directory if spec.push else None
    paths = tfx_pipeline.PipelinePaths(
        pipeline_root=pipeline_root,
        metadata=None,
        push_directory=push_directory or f"{pipeline_root.rstrip('/')}/{spec.name}/serving",
        image=image,
    )
    with user_module.importable(module):
        pipeline = tfx_pipeline.build(spec, module, paths, enable_cache)
        names = _runtime_defaults({component.id: component for component in pipeline.components})
        values = tfx_pipeline.get_parameter_values(spec)
        # Those of components that the spec does not know have their own defaults.
        yield pipeline, {name: value for name, value in values.items() if name in names}


@contextlib.contextmanager
def _unchanged(pipeline: pipeline_lib.Pipeline) -> Iterator[None]:
    """Restores the parameters of the user's components at the end."""
    components = [each for each in pipeline.components if isinstance(each, base_component.BaseComponent)]
    before = [dict(component.spec.exec_properties) for component in components]
    try:
        yield
    finally:
        for component, properties in zip(components, before, strict=True):
            component.spec.exec_properties.clear()
            component.spec.exec_properties.update(properties)


def _configure_trainers(
    pipeline: pipeline_lib.Pipeline,
    resources: Mapping[str, MachineSpec],
    make_launcher: Callable[[str], LauncherSettings],
    checkpoint_dir: str | None,
    defaults: Mapping[str, Any],
) -> list[str]:
    """Sets `launcher` and `checkpoint_dir` where unset.

    `make_launcher` turns a key of `resources` into the settings of the launcher that
    trains on that machine, which say where training runs. A `checkpoint_dir` of None is
    the Trainer's own default. A Trainer whose id is not `Trainer` gets a subfolder: two
    that train alike would continue each other's state.

    Returns the ids of Trainers and Tuners that train in their own steps. The defaults
    of parameters decide this, so that each step gets the machine that it needs.
    """
    in_step = []
    for trainer in pipeline.components:
        if not isinstance(trainer, TRAINING):
            continue
        properties = trainer.spec.exec_properties
        settings = make_launcher(name_of_machine(trainer, resources))
        values = {name: _value(value, defaults) for name, value in properties.items()}
        launcher = registry.from_json(values["launcher"]) if values.get("launcher") else settings
        if not launcher.runs_remotely(_read_parameters(trainer, values).distribution):
            in_step.append(trainer.id)
        if not values.get("launcher"):
            # A small step never trains, even in a run that asks for one process.
            launcher = settings if trainer.id in in_step else settings.elsewhere()
            properties["launcher"] = registry.to_json(launcher)
        if checkpoint_dir and not values.get("checkpoint_dir"):
            # A Trainer has to find its state when another one is added, too. Searches
            # are apart from trainings anyway.
            is_shared = isinstance(trainer, Tuner) or trainer.id == TRAINER
            properties["checkpoint_dir"] = checkpoint_dir if is_shared else f"{checkpoint_dir}/{trainer.id}"
    return in_step


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


def _fingerprint_queries(pipeline: pipeline_lib.Pipeline) -> list[str]:
    """Adds fingerprints to the cache keys of ExampleGens without files.

    Those of a pipeline file have them already. Returns the ids of those that declare no
    version of their data, and so must run each time.
    """
    unversioned = []
    for query in filter(_reads_no_files, pipeline.components):
        if not getattr(query, "data_version", ""):
            unversioned.append(query.id)
        elif tfx_pipeline.FINGERPRINT not in query.spec.exec_properties:
            tfx_pipeline.add_to_cache_key(query, tfx_pipeline.fingerprint_example_gen(query))
    return unversioned


def _reads_no_files(component: base_node.BaseNode) -> bool:
    """Returns True for an ExampleGen whose data no cache can tell from other data."""
    return (
        isinstance(component, base_component.BaseComponent)
        and not isinstance(component, FileBasedExampleGen)
        and not component.inputs
        and any(issubclass(channel.type, standard_artifacts.Examples) for channel in component.outputs.values())
    )


def find_pushers(pipeline: pipeline_lib.Pipeline) -> list[str]:
    """Returns the ids of the Pushers of this package, which must run each time.

    A cache does not know which version is served: a return to an earlier training would
    leave the later model there. Their executor pushes no model that is served already.
    """
    pushers = [component for component in pipeline.components if isinstance(component, Pusher)]
    own = Pusher.EXECUTOR_SPEC.class_path
    return [pusher.id for pusher in pushers if getattr(pusher.executor_spec, "class_path", None) == own]


def warn_of_uncached(unversioned: Sequence[str]) -> tuple[str, ...]:
    """Returns a warning for each ExampleGen without a version, which runs each time."""
    return tuple(
        f"{name}: declares no data_version, so that it runs each time, and everything after it too; if you know when its "
        "data change, write a data_version in its class (docs/data.md)"
        for name in unversioned
    )


def launcher_only_trainers(components: Mapping[str, base_node.BaseNode], in_step: Sequence[str]) -> list[str]:
    """Returns the names of Trainers and Tuners that only launch training elsewhere.

    Retrying such a step is safe: it finds the running training, and nothing is lost.
    """
    return [name for name, component in components.items() if isinstance(component, TRAINING) and name not in in_step]


def _value(value: Any, defaults: Mapping[str, Any]) -> Any:
    if isinstance(value, data_types.RuntimeParameter):
        return defaults.get(value.name)
    return value


def name_of_machine(component: base_node.BaseNode, resources: Mapping[str, MachineSpec]) -> str:
    """Returns the key of `resources` that has the machine of a component.

    For Trainers without a machine of their own and for Tuners, that is `Trainer`.
    """
    shares = isinstance(component, Tuner) or (isinstance(component, Trainer) and component.id not in resources)
    return TRAINER if shares else component.id


def machine_of_step(
    component: base_node.BaseNode, resources: Mapping[str, MachineSpec], trains_in_step: bool
) -> MachineSpec | None:
    """Returns the machine of a component's own step; None for the default machine."""
    if isinstance(component, TRAINING) and not trains_in_step:
        return machine_of_waiting_step(resources)
    return resources.get(name_of_machine(component, resources))


def check_resources(resources: Mapping[str, MachineSpec], components: Mapping[str, base_node.BaseNode]) -> None:
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


def merge_defaults(components: Mapping[str, base_node.BaseNode], defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the default of each pipeline parameter, by name.

    `defaults` replace those of the RuntimeParameters. Raises a ConfigurationError if
    the pipeline has no such parameter, or has two defaults for one.
    """
    given, own = dict(defaults or {}), _runtime_defaults(components)
    for name in given:
        if name not in own:
            raise ConfigurationError(
                f"defaults: the pipeline has no RuntimeParameter {name!r}; it has {', '.join(own) or 'none'}"
            )
    for name, values in own.items():
        if len(values) > 1 and name not in given:
            raise ConfigurationError(
                f"RuntimeParameter {name!r}: is one parameter of the pipeline, with the defaults "
                f"{' and '.join(map(repr, values))}; write one default, or two names"
            )
    return {name: values[0] if values else None for name, values in own.items()} | given


def _runtime_defaults(components: Mapping[str, base_node.BaseNode]) -> dict[str, list[Any]]:
    """Returns the different defaults of each RuntimeParameter, by name."""
    found: dict[str, list[Any]] = {}
    for component in components.values():
        for value in component.exec_properties.values():
            if isinstance(value, data_types.RuntimeParameter):
                values = found.setdefault(value.name, [])
                if value.default is not None and value.default not in values:
                    values.append(value.default)
    return found
