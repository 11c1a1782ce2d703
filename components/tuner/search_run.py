"""Runs a search: asks the oracle for trials, trains them, and tells it the results.

KerasTuner's oracle knows all about the trials; its state is what the next attempt
continues from.
"""

import contextvars
import functools
import json
import math
import os
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import replace

from absl import logging
from tfx.dsl.io import fileio
from tfx.utils import io_utils

from tfx_distribute.components.launchers import storage
from tfx_distribute.components.launchers.errors import GoneError, NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.tuner import oracle as oracle_lib
from tfx_distribute.components.tuner import trials
from tfx_distribute.components.tuner.search import Search, count_epochs, with_epochs
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.job.training_job import Outputs, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.reporting.progress import Progress
from tfx_distribute.trainer_module.state import saved_step

SEARCH_FILE = "search.json"
LOGS, STATE = "logs", "state"  # folders in that of a trial

# Trains a trial, given its job, its number, and a function that returns True if it has
# to end.
Launch = Callable[[TrainingJob, str, Callable[[], bool]], TrainingResult]


class SearchRun:
    """One search, which continues where an earlier attempt of the same search ended.

    All trials share `shared_job`, and `launch` trains the job of one, in a thread; see
    `places.Place.launch`. `folder`, for the search's state, is the same for each
    attempt; `oracle_folder` is a new one of this machine, for the oracle's own files.
    """

    def __init__(self, search: Search, shared_job: TrainingJob, folder: str, oracle_folder: str, launch: Launch):
        self._search = search
        self._job = shared_job
        self._folder = folder
        self._oracle_folder = oracle_folder
        self._launch, self._stopped = launch, threading.Event()
        epochs = count_epochs(shared_job.training_options)
        self._oracle = oracle_lib.make_oracle(search, shared_job.hparams, epochs, oracle_folder)
        path = os.path.join(folder, SEARCH_FILE)
        text = atomic_files.read(path)
        if text is not None:
            oracle_lib.restore(self._oracle, oracle_folder, saved_step.parse(text, path))

    def run(self) -> trials.SearchResult:
        """Runs the trials that are left, and returns the table of all."""
        if ended := self._oracle.end_order:
            announce(f"continues the search, of which {len(ended)} trials are done")
        with futures.ThreadPoolExecutor(self._search.num_parallel_trials) as threads:
            try:
                self._run_trials(threads)
            except BaseException:
                self._stopped.set()  # the block waits for the threads
                raise
        planned, made = self._oracle.max_trials or 0, len(self._oracle.trials)  # hyperband plans no number
        if made < planned:
            announce(f"the search tried {made} combinations of values, not {planned}: it found no others in tune.space")
        trials_ended = self._ended()
        if not self._has_succeeded():
            reason = f"; the last one, {trials_ended[-1].trial}: {trials_ended[-1].message}" if trials_ended else ""
            self._forget_failures()
            raise TrainingError(f"tune: none of the {len(trials_ended)} trials succeeded{reason}")
        longest = count_epochs(self._job.training_options)
        if self._search.oracle == "hyperband" and all(trial.epochs < longest for trial in trials_ended):
            announce(
                f"tune.space: it has fewer combinations of values than hyperband begins with, so no trial was continued to "
                f"epochs={longest}; write oracle: random, or fewer epochs"
            )
        ranked = trials.ranked(trials_ended, self._search.goal)
        return trials.SearchResult(self._search.objective, self._search.goal, ranked)

    def _run_trials(self, threads: futures.Executor) -> None:
        names = [f"worker-{number}" for number in range(self._search.num_parallel_trials)]
        running: dict[str, tuple[futures.Future[TrainingResult], oracle_lib.KerasTrial]] = {}
        while True:
            for name in [name for name in names if name not in running]:
                trial = self._oracle.create_trial(name)
                if trial.status != oracle_lib.TrialStatus.RUNNING:
                    break  # all trials are made, or the next one depends on those that run
                self._save()
                planned = self._read(trial)
                announce(f"trial {_describe(planned)}")
                launch = functools.partial(self._launch, self._make_job(trial), planned.trial, self._stopped.is_set)
                # With the settings of this thread.
                running[name] = threads.submit(contextvars.copy_context().run, launch), trial
            if not running:
                return
            futures.wait([future for future, _ in running.values()], return_when=futures.FIRST_COMPLETED)
            future, trial = running.pop(next(name for name in running if running[name][0].done()))
            error = future.exception()
            if error is not None and not _is_of_trial(error):
                raise error
            self._end(trial, None if error else future.result(), error)
            self._save()
            ended = self._read(trial)
            if ended.score is None or not ended.epochs:  # it has failed, or is not continued
                storage.discard(os.path.join(self._folder_of(ended.trial), STATE))

    def best_hyperparameters(self) -> str:
        """Returns the best trial's hyperparameters, in KerasTuner's format."""
        (best,) = self._oracle.get_best_trials(1)
        return json.dumps({**best.hyperparameters.get_config(), "values": dict(self._read(best).hparams)})

    def copy_logs(self, folder: str) -> None:
        """Copies the trials' TensorBoard logs to a folder for each."""
        for trial in self._ended():
            logs = os.path.join(self._folder_of(trial.trial), LOGS)
            if fileio.exists(logs):
                io_utils.copy_dir(logs, os.path.join(folder, f"trial-{trial.trial}"))

    def _read(self, trial: oracle_lib.KerasTrial) -> trials.Trial:
        return oracle_lib.read_trial(trial, self._search.objective, self._job.hparams)

    def _ended(self) -> list[trials.Trial]:
        """Returns the trials that have ended, in this order."""
        return [self._read(self._oracle.get_trial(name)) for name in self._oracle.end_order]

    def _folder_of(self, trial: str) -> str:
        return os.path.join(self._folder, f"trial-{trial}")

    def _make_job(self, trial: oracle_lib.KerasTrial) -> TrainingJob:
        """Makes the job of a trial: a training with its values that exports no model.

        A trial that continues another works on that one's saved state. The file for the
        job's result is left out.
        """
        planned = first = self._read(trial)
        while first.continues:
            trial = self._oracle.get_trial(oracle_lib.continued_id(trial))
            first = self._read(trial)
        options = self._job.training_options
        return replace(
            self._job,
            hparams={**self._job.hparams, **planned.hparams},
            training_options=with_epochs(options, planned.epochs) if planned.epochs else options,
            outputs=Outputs(
                serving_model_dir="",
                model_run_dir=os.path.join(self._folder_of(planned.trial), LOGS),
                result_file="",
                checkpoint_dir=os.path.join(self._folder_of(first.trial), STATE),
                saves_end=bool(planned.epochs),
            ),
        )

    def _end(self, trial: oracle_lib.KerasTrial, result: TrainingResult | None, error: BaseException | None) -> None:
        """Tells the oracle how a trial has ended.

        A failure that ends the search is not saved: the next attempt tries it again.
        """
        score, message = (None, str(error)) if result is None else self._score(result)
        is_of_hyperband = bool(self._read(trial).epochs)
        trial.status, trial.message = oracle_lib.TrialStatus.COMPLETED, message
        if score is None and not is_of_hyperband:
            trial.status = oracle_lib.TrialStatus.FAILED
        else:
            # Hyperband would wait for a better end, and continue no trial of the round.
            worst = math.inf if self._search.goal == "min" else -math.inf
            metrics = {self._search.objective: worst if score is None else score}
            if result is not None:
                metrics[oracle_lib.SECONDS] = result.seconds
            self._oracle.update_trial(trial.trial_id, metrics, step=result.train_steps if result else 0)
        self._oracle.end_trial(trial)
        self._oracle.save()  # its own save is of the moment before
        ended = self._read(trial)
        how = f": {self._search.objective} {score:.6g}" if score is not None else f" failed: {trials.shorten(message)}"
        announce(f"trial {ended.trial}{how}")
        limit = self._search.max_consecutive_failed_trials
        latest = self._ended()[-limit:]
        if len(latest) == limit and all(trial.score is None for trial in latest):
            if not self._has_succeeded():
                self._forget_failures()
            raise TrainingError(
                f"tune.max_consecutive_failed_trials: {limit} trials have failed one after another, so the search ends; the "
                f"last one, {_describe(ended)}: {message}"
            ) from error

    def _score(self, result: TrainingResult) -> tuple[float | None, str]:
        """Returns the objective's last value, or the best one if that is exported.

        None, and why, if it is not finite, or if a training that ended early, or a
        metric that only some values create, has left none. Raises a ConfigurationError
        if no trial has reported this metric.
        """
        objective = self._search.objective
        if result.best and result.best.metric == objective:
            return result.best.value, ""
        if objective not in result.metrics and not self._has_succeeded():
            known = ", ".join(sorted(result.metrics))
            raise ConfigurationError(
                f"tune.objective: training reports no {objective!r}; it reports {known} (validation_freq may be larger than "
                "the epochs of a trial)"
            )
        if objective not in result.metrics:
            return None, f"it ended without {objective}"
        score = float(result.metrics[objective])
        return (score, "") if math.isfinite(score) else (None, f"{objective} is {score}")

    def _has_succeeded(self) -> bool:
        return any(trial.score is not None for trial in self._ended())

    def _forget_failures(self) -> None:
        """Makes the next attempt start over, when the cause may have been fixed."""
        storage.discard(os.path.join(self._folder, SEARCH_FILE))

    def _save(self) -> None:
        """Saves the state of the search, so that the next attempt continues from it."""
        text = json.dumps(oracle_lib.snapshot(self._oracle_folder))
        atomic_files.write(os.path.join(self._folder, SEARCH_FILE), text, durable=True)


def _is_of_trial(error: BaseException) -> bool:
    """Returns True if an error says that a trial has failed."""
    # An outage, which ends all running trials, and a lack of machines say nothing about
    # the values that were tried. Whoever deletes the job of a trial wants it ended.
    is_outage = isinstance(error, NotFollowedError | NoRoomError) and not isinstance(error, GoneError)
    return isinstance(error, TrainingError | ConfigurationError) and not is_outage


def announce(message: str) -> None:
    """Shows a message about the search in the terminal, and logs it."""
    logging.info(message)
    local_launcher.current_settings().on_progress(CHIEF_TASK, Progress("start", message=message))


def _describe(trial: trials.Trial) -> str:
    epochs = f", {trial.epochs} epoch{'s' if trial.epochs > 1 else ''}" if trial.epochs else ""
    continues = f", continues trial {trial.continues}" if trial.continues else ""
    return f"{trial.trial} ({trials.describe(trial.hparams)}{epochs}{continues})"
