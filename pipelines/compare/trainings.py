"""Prepares the data of a comparison, and trains its combinations one after another."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfx import types
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import inputs_utils
from tfx.proto.orchestration import pipeline_pb2

from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.tuner import trials
from tfx_distribute.components.tuner.trial_launcher import TrialLauncher, trial_launcher
from tfx_distribute.pipelines.compare.combinations import Combination
from tfx_distribute.pipelines.compare.comparison import Outcome
from tfx_distribute.pipelines.compare.measurement import measure
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import runner
from tfx_distribute.pipelines.targets.local.paths import RunPaths
from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Outputs
from tfx_distribute.trainer_module.reporting import history


@contextlib.contextmanager
def prepare(
    combinations: Sequence[Combination],
    module: Module,
    paths: RunPaths,
    connection: Any,
    folder: Path,
    on_node: runner.NodeListener,
) -> Iterator[Callable[[int, Combination], Outcome]]:
    """Prepares the data once, and trains combinations within the block.

    The nodes before the Trainer run in the pipeline's own folder, so that they come
    from the cache of earlier runs, and later runs find them there. The Trainer does not
    run: no model, no saved state and no execution is left behind.

    `combinations` are those that can be trained, `connection` is what `runner.session`
    yields, and `folder` gets the history and the logs of each combination. Yields a
    function that trains a combination, given its number.

    Raises:
      NodeError: A node before the Trainer failed.
    """
    spec = _prepares_data(combinations)
    data = _DataRunner(tfx_pipeline.get_parameter_values(spec), on_node, paths.run_id)
    data.run(runner.build(spec, module, paths, connection, enable_cache=True))
    properties = data.exec_properties
    distribution = job_builder.training_parameters(properties).distribution
    with trial_launcher(data.artifacts, properties, distribution, str(folder), 1, noun="combination") as launcher:
        yield lambda number, combination: _train(combination, number, properties, launcher, folder)


class _DataRunner(runner.LocalRunner):
    """Runs the nodes before the Trainer, and resolves what the Trainer would get."""

    artifacts: dict[str, list[types.Artifact]]
    exec_properties: dict[str, Any]

    def select(self, nodes: Mapping[str, pipeline_pb2.PipelineNode]) -> set[str]:
        return nodes.keys() - {"Trainer"}

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: Any = None) -> None:
        super().run_with_ir(pipeline, run_options)  # gives the pipeline the values of its parameters
        (trainer,) = [one.pipeline_node for one in pipeline.nodes if one.pipeline_node.node_info.id == "Trainer"]
        store = runner_utils.extract_local_deployment_config(pipeline).metadata_connection_config
        with metadata.Metadata(getattr(store, store.WhichOneof("connection_config"))) as handle:
            (artifacts,) = inputs_utils.resolve_input_artifacts(pipeline_node=trainer, metadata_handle=handle)
        self.artifacts = {key: list(values) for key, values in artifacts.items()}
        self.exec_properties = data_types_utils.build_parsed_value_dict(
            inputs_utils.resolve_parameters_with_schema(node_parameters=trainer.parameters)
        )


def _prepares_data(combinations: Sequence[Combination]) -> PipelineSpec:
    """Returns the pipeline whose shards divide evenly among the readers of all."""
    spec = combinations[0].spec
    readers = [strategy_table.reading_processes(each.spec.trainer.parameters.distribution) for each in combinations]
    # Only the Sharder sees this number, so it need not go with the strategy.
    parameters = spec.trainer.parameters.model_copy(update={"num_workers": math.lcm(*readers)})
    return spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"parameters": parameters})})


def _train(
    combination: Combination, number: int, exec_properties: dict[str, Any], launcher: TrialLauncher, folder: Path
) -> Outcome:
    """Trains a combination: without evaluation, saved state and model."""
    properties = {**exec_properties, **tfx_pipeline.get_parameter_values(combination.spec)}
    name = re.sub(r"[^\w.=-]+", "_", f"{number} {combination.label}")[:100]
    outputs = Outputs(serving_model_dir="", model_run_dir=str(folder / name), result_file="")
    try:
        parameters = job_builder.training_parameters(properties)
        job = job_builder.describe_job(launcher.inputs, outputs, properties, parameters, launcher.folder)
        launcher.launch(replace(job, data=job.data and replace(job.data, eval=None)), str(number))
        measurement = measure(history.read(outputs.model_run_dir))
    except TfxDistributeError as error:
        return Outcome(combination, "failed", trials.shorten(str(error)))
    return Outcome(combination, "measured", measurement=measurement)
