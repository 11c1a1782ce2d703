"""Searches for hyperparameters, and writes the best ones and the table of trials."""

import hashlib
import json
import os
import tempfile
from typing import Any

from absl import logging
from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components.launchers import locks, storage
from tfx_distribute.components.trainer import job_builder, places, run_identity
from tfx_distribute.components.tuner import local_trials, trials
from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.components.tuner.search import Search
from tfx_distribute.trainer_module.job.training_job import Outputs

# Name of the file, as of TFX's Tuner.
BEST_FILE = "best_hyperparameters.txt"
# Folder of the states of searches, in that of the states of trainings.
_SEARCHES = "searches"


class Executor(base_executor.BaseExecutor):
    """Trains trials in separate processes, on this machine or on others."""

    def Do(  # noqa: N802 (TFX's name)
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
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
            launch = local_trials.share_machine(place, parameters.distribution, search.num_parallel_trials)
            inputs = place.staged.inputs
            job = job_builder.describe_job(inputs, Outputs("", "", ""), exec_properties, parameters, place.folder)
            identity = {
                **run_identity.fingerprint_inputs(job, place.staged, exec_properties.get("module_fingerprint")),
                "tune": hashlib.sha256(json.dumps(search.decisive_settings(), sort_keys=True).encode()).hexdigest()[:16],
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
