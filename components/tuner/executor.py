"""Searches for hyperparameters, and writes the best ones and the table of trials.

Trials that train at the same time on this machine share its devices.
"""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from absl import logging
from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components.launchers import locks, storage
from tfx_distribute.components.launchers.local import gpus
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.trainer import job_builder, places, run_identity
from tfx_distribute.components.trainer.staging import Artifacts
from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.components.tuner import trials
from tfx_distribute.components.tuner.search import Search
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import ClusterTask, replicas_of_roles, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.reporting.progress import Progress

if TYPE_CHECKING:
    from tfx_distribute.components.tuner.search_run import Launch

BEST_FILE = "best_hyperparameters.txt"  # as of TFX's Tuner
_SEARCHES = "searches"  # folder of their states, in that of the states of trainings


class Executor(base_executor.BaseExecutor):
    """Trains trials in separate processes, on this machine or on others."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX)
        """Searches for hyperparameters."""
        # Takes a second, which other components need not wait for.
        from tfx_distribute.components.tuner.search_run import SEARCH_FILE, SearchRun

        self._log_startup(input_dict, output_dict, exec_properties)
        search = Search.model_validate_json(exec_properties["tune"])
        hparams = json.loads(exec_properties.get("hparams") or "{}")
        search_lib.check(search, hparams)
        parameters = job_builder.training_parameters(exec_properties)
        options = search_lib.trial_options(search, parameters.training_options)
        parameters = parameters._replace(training_options=options)
        best = artifact_utils.get_single_instance(output_dict[standard_component_specs.BEST_HYPERPARAMETERS_KEY])
        table = artifact_utils.get_single_instance(output_dict[standard_component_specs.TUNER_RESULTS_KEY])
        with places.open_place(input_dict, {}, exec_properties, parameters.distribution, best.uri) as place:
            launch = share_machine(place, parameters.distribution, search.num_parallel_trials)
            inputs = place.staged.inputs
            job = job_builder.describe_job(inputs, Outputs("", "", ""), exec_properties, parameters, place.folder)
            identity = {
                **run_identity.fingerprint_inputs(job, place.staged, exec_properties.get("module_fingerprint")),
                "tune": run_identity.fingerprint_of(search.decisive_settings()),
            }
            root = os.path.join(job_builder.checkpoint_root(exec_properties, best.uri), _SEARCHES)
            folder = run_identity.ensure_checkpoint_dir(root, identity, SEARCH_FILE, noun="search")
            advice = "it searches on the same module and data; wait until it ends, stop it, or write another checkpoint_dir"
            with (
                locks.exclusive(folder, "the state of the search", advice),
                tempfile.TemporaryDirectory(prefix="oracle-") as oracle_folder,
            ):
                run = SearchRun(search, job, folder, oracle_folder, launch)
                result = run.run()
                write(best, table, run.best_hyperparameters(), result)
                run.copy_logs(os.path.join(table.uri, "logs"))
                storage.discard(folder)
        logging.info("Trials:\n%s", trials.format_table(result))


def write(best: types.Artifact, table: types.Artifact, hyperparameters: str, result: trials.SearchResult) -> None:
    """Writes the outputs of a search, in the files of TFX's Tuner and the table."""
    io_utils.write_string_file(os.path.join(best.uri, BEST_FILE), hyperparameters)
    io_utils.write_string_file(os.path.join(table.uri, trials.RESULTS_FILE), trials.to_records(result.trials))
    io_utils.write_string_file(os.path.join(table.uri, trials.TABLE_FILE), trials.to_lines(result.trials))
    table.set_string_custom_property("objective", result.objective)
    table.set_string_custom_property("goal", result.goal)


def share_machine(place: places.Place, distribution: Distribution, num_parallel_trials: int) -> "Launch":
    """Returns a function that launches a trial in a place, on GPUs of its own.

    `distribution` is of one trial. Raises a ConfigurationError if there are too few
    devices for so many trials.
    """
    if num_parallel_trials == 1 or place.is_remote:
        return place.launch
    settings = local_launcher.current_settings()
    free = _divide_gpus(distribution, num_parallel_trials)  # `pop` and `append` are safe in several threads

    def launch(job: TrainingJob, trial: str, is_stopped: Callable[[], bool]) -> TrainingResult:
        def show_message(task: ClusterTask, progress: Progress) -> None:
            if progress.message:  # steps of several trials would be mixed
                settings.on_progress(task, Progress("start", message=f"trial {trial}: {progress.message}"))

        own = free.pop()
        try:
            # A fork server serves one launch at a time.
            with local_launcher.settings(replace(settings, server=None, on_progress=show_message, gpus=own)):
                return place.launch(job, trial, is_stopped)
        finally:
            free.append(own)

    return launch


def _divide_gpus(distribution: Distribution, num_parallel_trials: int) -> list[tuple[str, ...] | None]:
    """Returns the GPUs of each of the trials that train at the same time.

    They are names for CUDA_VISIBLE_DEVICES; None leaves it unchanged.
    """
    own = local_launcher.current_settings().gpus
    available = tuple(gpus.list_visible()) if own is None else own
    if distribution.strategy == "tpu":
        raise ConfigurationError("tune.num_parallel_trials: trials at the same time cannot share a machine's TPU; write 1")
    roles = replicas_of_roles(distribution).items()
    processes = sum(count for role, count in roles if uses_accelerators(distribution, ClusterTask(role, 0)))
    needed = processes * max(distribution.accelerator_count, 1)
    uses_cpu = distribution.accelerator_type == "cpu"
    # If there are too few for a single trial, its own launch says so.
    if uses_cpu or needed > len(available):
        return [own] * num_parallel_trials
    each = len(available) // num_parallel_trials
    if each < needed:
        raise ConfigurationError(
            f"tune.num_parallel_trials: {num_parallel_trials} trials at the same time need {needed} GPUs each, and this "
            f"machine has {len(available)}; write {len(available) // needed}, or accelerator_type: cpu"
        )
    return [available[index * each : (index + 1) * each] for index in range(num_parallel_trials)]
