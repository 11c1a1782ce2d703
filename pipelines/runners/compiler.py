"""What the compilers of all targets share: TFX's own KubeflowV2DagRunner, and what the Trainer is told of the target."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx.dsl.components.base import base_node
from tfx.orchestration import data_types
from tfx.orchestration import pipeline as pipeline_lib
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner

from tfx_distribute.components.launchers import settings as settings_lib
from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.trainer.component import Trainer
from tfx_distribute.pipelines.runners import tfx_pipeline
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.machines import DEFAULT, MachineSpec
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

SMALL_RETRIES = 1  # of a step that has other machines train


def compile_with_tfx(pipeline: pipeline_lib.Pipeline, image: str, schema_2_1: bool) -> dict[str, Any]:
    """The pipeline as TFX compiles it, a PipelineJob.

    Args:
      pipeline: The pipeline.
      image: Container image of all steps.
      schema_2_1: Whether in the schema of open-source Kubeflow Pipelines, 2.1.0; that of Vertex AI is 2.0.0.
    """
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image=image, use_pipeline_spec_2_1=schema_2_1)
    # The runner wants a name that goes with the schema, and writes nothing.
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, output_filename="job.yaml" if schema_2_1 else "job.json")
    return dict(runner.run(pipeline, write_out=False))


@contextlib.contextmanager
def built_pipeline(
    spec: PipelineSpec, module: user_module.Module, pipeline_root: str, image: str, enable_cache: bool
) -> Iterator[tuple[pipeline_lib.Pipeline, dict[str, Any]]]:
    """The TFX pipeline of a pipeline file, and the defaults of its parameters; within the block its module can be imported.

    Args:
      spec: What the pipeline is.
      module: The user's module.
      pipeline_root: Address that artifacts are written under.
      image: Container image of all steps.
      enable_cache: Whether steps whose inputs have not changed take their outputs from an earlier run.
    """
    pushed = spec.push.directory if spec.push else None
    places = tfx_pipeline.PipelinePaths(
        pipeline_root=pipeline_root,
        metadata=None,
        push_directory=pushed or f"{pipeline_root.rstrip('/')}/{spec.name}/serving",
        image=image,
    )
    with user_module.importable(module):
        yield tfx_pipeline.build(spec, module, places, enable_cache), tfx_pipeline.get_parameter_values(spec)


@contextlib.contextmanager
def configured_trainers(
    pipeline: pipeline_lib.Pipeline,
    settings: settings_lib.Settings,
    checkpoint_dir: str | None,
    defaults: Mapping[str, Any],
) -> Iterator[list[str]]:
    """Tells Trainers, within the block, where training runs and where states are kept, as far as the pipeline does not.

    Args:
      pipeline: The pipeline.
      settings: Where training runs.
      checkpoint_dir: Where states are kept; None for the Trainer's own default.
      defaults: Defaults of pipeline parameters.

    Yields:
      Those that train in their own steps: that is for the defaults to decide, so that a step has the machine it needs.
    """
    trainers = [component for component in pipeline.components if isinstance(component, Trainer)]
    before = {trainer.id: dict(trainer.spec.exec_properties) for trainer in trainers}
    in_step = []
    try:
        for trainer in trainers:
            properties = trainer.spec.exec_properties
            given = {name: _value(value, defaults) for name, value in properties.items()}
            own = settings_lib.from_json(given["launcher"]) if given.get("launcher") else settings
            if not settings_lib.runs_remotely(own, job_builder.training_parameters(given)[0]):
                in_step.append(trainer.id)
            if not given.get("launcher"):
                # A small step never trains, also in a run that asks for one process.
                elsewhere = settings if trainer.id in in_step else settings_lib.force_remote(settings)
                properties["launcher"] = settings_lib.to_json(elsewhere)
            if checkpoint_dir and not given.get("checkpoint_dir"):
                properties["checkpoint_dir"] = checkpoint_dir
        yield in_step
    finally:
        for trainer in trainers:
            trainer.spec.exec_properties.clear()
            trainer.spec.exec_properties.update(before[trainer.id])


def launcher_only_trainers(components: Mapping[str, base_node.BaseNode], in_step: Sequence[str]) -> list[str]:
    """Those whose steps have other machines train: another try finds what goes on there, and loses nothing."""
    return [name for name, component in components.items() if isinstance(component, Trainer) and name not in in_step]


def _value(value: Any, defaults: Mapping[str, Any]) -> Any:
    if isinstance(value, data_types.RuntimeParameter):
        return defaults.get(value.name)
    return value


def check_resources(
    resources: Mapping[str, MachineSpec], components: Mapping[str, base_node.BaseNode], *others: str
) -> None:
    """Refuses machines of components that a pipeline has not.

    Args:
      resources: Component -> machine.
      components: Those of the pipeline.
      *others: What else may have a machine.

    Raises:
      ConfigurationError: There is one.
    """
    for name in resources:
        if name not in (*components, DEFAULT, *others):
            raise ConfigurationError(f"resources.{name}: the pipeline has no such component; it has {', '.join(components)}")


def runtime_defaults(components: Mapping[str, base_node.BaseNode]) -> dict[str, Any]:
    """Name -> default of each RuntimeParameter."""
    return {
        value.name: value.default
        for component in components.values()
        for value in component.exec_properties.values()
        if isinstance(value, data_types.RuntimeParameter)
    }
