"""Prepares the data of a comparison, and trains its combinations one after another."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.trainer import job_builder
from tfx_distribute.components.tuner import trials
from tfx_distribute.components.tuner.trial_launcher import TrialLauncher, trial_launcher
from tfx_distribute.pipelines.compare import combinations as combinations_lib
from tfx_distribute.pipelines.compare import grid
from tfx_distribute.pipelines.compare import measurement as measurement_lib
from tfx_distribute.pipelines.compare.combinations import Combination
from tfx_distribute.pipelines.compare.comparison import FAILED, MEASURED, SKIPPED, Outcome, make_outcome
from tfx_distribute.pipelines.spec.pipeline import PipelineSpec
from tfx_distribute.pipelines.spec.user_module import Module
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.pipelines.targets.local import runner, upstream
from tfx_distribute.pipelines.targets.local.paths import RunPaths
from tfx_distribute.trainer_module.errors import ConfigurationError, TfxDistributeError
from tfx_distribute.trainer_module.job import step_plan
from tfx_distribute.trainer_module.job.training_job import Outputs, TrainingJob
from tfx_distribute.trainer_module.lifecycle import history

NOUN = "combination"  # in names of folders
_NOT_IN_FOLDERS = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True)
class _Training:
    """A combination whose data are there.

    Attributes:
      job: Its training job.
      launcher: Launches it.
    """

    job: TrainingJob
    launcher: TrialLauncher


def run(
    combinations: Sequence[Combination],
    module: Module,
    paths: RunPaths,
    connection: Any,
    folder: Path,
    on_node: runner.NodeListener = lambda event: None,
    on_start: Callable[[int], None] = lambda index: None,
) -> Iterator[tuple[int, Outcome]]:
    """Prepares the data once, and trains the combinations.

    The nodes before the Trainer run in the pipeline's own folder, so that they come
    from the cache of earlier runs, and later runs find them there. The Trainer does not
    run: no model, no saved state and no execution is left behind.

    Args:
      combinations: All combinations; those that cannot be trained are left out.
      module: The user's module.
      paths: Where runs keep their files.
      connection: What `runner.session` yields.
      folder: Folder for the history and the logs of each combination.
      on_node: Called before and after each node.
      on_start: Called with the index of a combination before it is trained.

    Yields:
      The index of a combination and its outcome, as soon as that is known.

    Raises:
      NodeError: A node before the Trainer failed.
    """
    indices = {id(each): index for index, each in enumerate(combinations)}
    trainings: dict[int, _Training] = {}
    with contextlib.ExitStack() as stack:
        for number, (data_spec, group) in enumerate(combinations_lib.group_by_data(combinations), 1):
            run_id = paths.run_id if number == 1 else f"{paths.run_id}-{number}"
            inputs = upstream.run("Trainer", data_spec, module, paths, connection, on_node, run_id)
            parameters = job_builder.training_parameters(inputs.exec_properties)
            launcher = stack.enter_context(
                trial_launcher(inputs.artifacts, inputs.exec_properties, parameters.distribution, str(folder), 1, noun=NOUN)
            )
            for combination in group:
                index = indices[id(combination)]
                try:
                    job = _make_job(combination, inputs.exec_properties, launcher, folder / _folder_name(index, combination))
                except ConfigurationError as error:
                    yield index, make_outcome(combination, SKIPPED, str(error))
                else:
                    trainings[index] = _Training(job, launcher)
        server = local_launcher.current_settings().server
        if server is not None:
            server.wait_ready()  # which is not part of any combination's start-up
        for index, training in sorted(trainings.items()):
            on_start(index)
            yield index, _train(combinations[index], training, index)


def _folder_name(index: int, combination: Combination) -> str:
    """Returns the name of a combination's folder, which TensorBoard shows."""
    values = _NOT_IN_FOLDERS.sub("_", grid.describe(combination.values))[:100].strip("_")
    return f"{index + 1}-{values}" if values else str(index + 1)


def _make_job(
    combination: Combination, exec_properties: dict[str, Any], launcher: TrialLauncher, folder: Path
) -> TrainingJob:
    """Makes the training job of a combination: without evaluation, state and model.

    Raises:
      ConfigurationError: It cannot be trained on these data.
    """
    spec = _spec_of(combination)
    properties = {**exec_properties, **tfx_pipeline.get_parameter_values(spec)}
    parameters = job_builder.training_parameters(properties)
    outputs = Outputs(serving_model_dir="", model_run_dir=str(folder), result_file="")
    job = job_builder.describe_job(launcher.inputs, outputs, properties, parameters, launcher.folder)
    if job.data is None:
        raise ConfigurationError("module: a run_fn trains by itself, so its steps cannot be measured; write build_model")
    if combination.replicas:
        fixed_batches = bool(job.distribution.info.fixed_batches)
        step_plan.make_plan(job.training_options, job.data.train.num_examples, combination.replicas, fixed_batches)
    return replace(job, data=replace(job.data, eval=None))


def _spec_of(combination: Combination) -> PipelineSpec:
    if combination.spec is None:
        raise ValueError(f"{combination} cannot be trained")
    return combination.spec


def _train(combination: Combination, training: _Training, index: int) -> Outcome:
    folder, launched = training.job.outputs.model_run_dir, time.time()
    try:
        training.launcher.launch(training.job, str(index + 1))
        measurement = measurement_lib.measure(history.read(folder), launched)
    except TfxDistributeError as error:
        return make_outcome(combination, FAILED, trials.shorten(str(error)), folder=folder)
    except measurement_lib.TooShortError as error:
        return make_outcome(combination, FAILED, str(error), folder=folder)
    return make_outcome(combination, MEASURED, measurement=measurement, folder=folder)
