"""Runs a search: asks the oracle for trials, trains them, and tells it the results."""

import json
import math
import os
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from tfx_distribute.components.launchers import storage
from tfx_distribute.components.launchers.errors import GoneError, NoRoomError, NotFollowedError
from tfx_distribute.components.tuner import oracle as oracle_lib
from tfx_distribute.components.tuner import trial_jobs, trials
from tfx_distribute.components.tuner.search import Search, count_epochs
from tfx_distribute.components.tuner.trial_jobs import TrialPlan
from tfx_distribute.components.tuner.trial_launcher import Launch, announce
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingResult
from tfx_distribute.trainer_module.state import saved_step

SEARCH_FILE = "search.json"


class SearchRun:
    """One search, which continues where an earlier attempt of the same search ended.

    ```python
    run = SearchRun(search, job, "/states/4d2f", "/tmp/oracle", launcher.launch)
    run.run()
    run.best_hyperparameters()  # KerasTuner's document
    ```

    All trials share `shared_job`, and `launch` trains the job of one, in a thread;
    `stop` ends those that train. `folder`, for the search's state, is the same for each
    attempt; `oracle_folder` is a new one of this machine, for the oracle's own files.

    Raises:
      ConfigurationError: The oracle needs a package that is not installed.
    """

    def __init__(
        self,
        search: Search,
        shared_job: TrainingJob,
        folder: str,
        oracle_folder: str,
        launch: Launch,
        stop: Callable[[], None] = lambda: None,
    ):
        self._search = search
        self._job = shared_job
        self._folder = folder
        self._oracle_folder = oracle_folder
        self._launch, self._stop = launch, stop
        space = oracle_lib.make_space(search, shared_job.hparams)
        epochs = count_epochs(shared_job.training_options)
        self._oracle = oracle_lib.make_oracle(search, space, epochs, oracle_folder)
        self._trials: dict[str, trials.Trial] = {}
        path = os.path.join(folder, SEARCH_FILE)
        text = atomic_files.read(path)
        if text is not None:
            document = saved_step.parse(text, path)
            oracle_lib.restore(self._oracle, oracle_folder, document["oracle"])
            self._trials = {trial.trial: trial for trial in trials.from_lines(document["trials"])}

    def run(self) -> None:
        """Runs the trials that are left.

        Raises:
          ConfigurationError: Training reports no metric with the objective's name.
          NoRoomError: There are no machines for so many trials at the same time.
          NotFollowedError: Trials cannot be followed, e.g. because no service answers.
            The next attempt continues them, as after a NoRoomError.
          TrainingError: Too many trials have failed, or all of them.
        """
        if self._trials:
            announce(f"continues the search, of which {len(self._trials)} trials are done")
        with futures.ThreadPoolExecutor(self._search.num_parallel_trials) as threads:
            try:
                self._run_trials(threads)
            except BaseException:
                self._stop()  # the block waits for the threads
                raise
        if shortfall := oracle_lib.describe_shortfall(self._oracle):
            announce(shortfall)
        if not self._has_succeeded():
            last = next(reversed(self._trials.values()), None)
            reason = f"; the last one, {last.trial}: {last.message}" if last else ""
            self._forget_failures()
            raise TrainingError(f"tune: none of the {len(self._trials)} trials succeeded{reason}")

    def _run_trials(self, threads: futures.Executor) -> None:
        names = [f"worker-{number}" for number in range(self._search.num_parallel_trials)]
        running: dict[str, tuple[futures.Future[tuple[TrainingResult, float]], TrialPlan]] = {}
        while True:
            for name in [name for name in names if name not in running]:
                trial = self._oracle.create_trial(name)
                if trial.status != oracle_lib.TrialStatus.RUNNING:
                    break  # all trials are made, or the next one depends on those that run
                self._save()
                plan = self._plan(trial)
                announce(f"trial {_describe(plan)}")
                running[name] = threads.submit(self._train, plan), plan
            if not running:
                return
            futures.wait([future for future, _ in running.values()], return_when=futures.FIRST_COMPLETED)
            future, plan = running.pop(next(name for name in running if running[name][0].done()))
            error = future.exception()
            if error is not None and not _is_of_trial(error):
                raise error
            self._end(plan, None if error else future.result(), error)
            self._save()
            self._discard_state(plan)

    def best_hyperparameters(self) -> str:
        """Returns the best trial's hyperparameters, in KerasTuner's format."""
        (best,) = self._oracle.get_best_trials(1)
        return oracle_lib.best_hyperparameters(best, oracle_lib.values_of(best, self._job.hparams))

    def result(self) -> trials.SearchResult:
        """Returns the table of trials."""
        ranked = trials.ranked(self._trials.values(), self._search.goal)
        return trials.SearchResult(self._search.objective, self._search.goal, tuple(ranked))

    def _plan(self, trial: oracle_lib.KerasTrial) -> TrialPlan:
        values = trial.hyperparameters.values
        first = trial
        while previous := first.hyperparameters.values.get(f"{oracle_lib.RESERVED}trial_id"):
            first = self._oracle.get_trial(previous)
        return TrialPlan(
            trial=_number(trial.trial_id),
            oracle_id=trial.trial_id,
            hparams=oracle_lib.values_of(trial, self._job.hparams),
            epochs=values.get(f"{oracle_lib.RESERVED}epochs", 0),
            continues=_number(values.get(f"{oracle_lib.RESERVED}trial_id", "")),
            first=_number(first.trial_id),
        )

    def _train(self, plan: TrialPlan) -> tuple[TrainingResult, float]:
        started = time.monotonic()
        result = self._launch(trial_jobs.make_job(self._job, plan, self._folder), plan.trial)
        return result, time.monotonic() - started

    def _end(self, plan: TrialPlan, ended: tuple[TrainingResult, float] | None, error: BaseException | None) -> None:
        """Tells the oracle how a trial has ended.

        Raises:
          ConfigurationError: The result has no metric with the objective's name.
          TrainingError: It failed, and no more may. It is not saved that it did: the
            next attempt tries it again.
        """
        trial = self._oracle.get_trial(plan.oracle_id)
        step, seconds, score, message = 0, 0.0, None, str(error or "")
        if ended is not None:
            result, seconds = ended
            step, score = result.train_steps, self._score(result)
            if score is None:
                message = f"it ended without {self._search.objective}"
            elif not math.isfinite(score):
                score, message = None, f"{self._search.objective} is {score}"
        trial.status, trial.message = oracle_lib.TrialStatus.COMPLETED, message
        if score is not None:
            self._oracle.update_trial(plan.oracle_id, {self._search.objective: score}, step=step)
            announce(f"trial {plan.trial}: {self._search.objective} {score:.6g}")
        else:
            if plan.epochs:  # Hyperband would wait for a better end, and continue no trial of the round
                worst = math.inf if self._search.goal == "min" else -math.inf
                self._oracle.update_trial(plan.oracle_id, {self._search.objective: worst})
            else:
                trial.status = oracle_lib.TrialStatus.FAILED
            announce(f"trial {plan.trial} failed: {trials.shorten(message)}")
        self._oracle.end_trial(trial)
        self._oracle.save()  # its own save is of the moment before
        self._trials[plan.trial] = trials.Trial(
            trial=plan.trial,
            status=trials.FAILED if score is None else trials.COMPLETED,
            hparams=dict(plan.hparams),
            score=score,
            step=step,
            epochs=plan.epochs,
            continues=plan.continues,
            seconds=round(seconds, 3),
            message=message,
        )
        if message.startswith("base_model"):  # of another architecture: each such trial would fail
            raise ConfigurationError(
                f"{message}; or leave hyperparameters that change the architecture out of tune.space "
                f"(here {_describe(plan)})"
            )
        limit = self._search.max_consecutive_failed_trials
        latest = list(self._trials.values())[-limit:]
        if score is None and len(latest) == limit and all(trial.score is None for trial in latest):
            if not self._has_succeeded():
                self._forget_failures()
            raise TrainingError(
                f"tune.max_consecutive_failed_trials: {limit} trials have failed one after another, so the search ends; the "
                f"last one, {_describe(plan)}: {message}"
            ) from error

    def _has_succeeded(self) -> bool:
        """Returns True if at least one trial has succeeded."""
        return any(trial.score is not None for trial in self._trials.values())

    def _forget_failures(self) -> None:
        """Makes the next attempt start over, when the cause may have been fixed."""
        storage.discard(os.path.join(self._folder, SEARCH_FILE))

    def _discard_state(self, plan: TrialPlan) -> None:
        """Removes the saved state of a trial that has failed, or is not continued."""
        if self._trials[plan.trial].score is None or not plan.epochs:
            storage.discard(os.path.join(trial_jobs.folder_of(self._folder, plan.trial), trial_jobs.STATE))

    def _score(self, result: TrainingResult) -> float | None:
        """Returns the objective's last value, or the best one if that is exported.

        None if a training that ended early, or a metric that only some values create,
        has left none. Raises a ConfigurationError if no trial has reported this metric.
        """
        if result.best and result.best.metric == self._search.objective:
            return result.best.value
        if self._search.objective not in result.metrics:
            if self._has_succeeded():
                return None
            known = ", ".join(sorted(result.metrics))
            raise ConfigurationError(f"tune.objective: training reports no {self._search.objective!r}; it reports {known}")
        return float(result.metrics[self._search.objective])

    def _save(self) -> None:
        """Saves the state of the search, so that the next attempt continues from it."""
        document: dict[str, Any] = {
            "oracle": oracle_lib.snapshot(self._oracle_folder),
            "trials": trials.to_lines(self._trials.values()),
        }
        atomic_files.write(os.path.join(self._folder, SEARCH_FILE), json.dumps(document), durable=True)


def _is_of_trial(error: BaseException) -> bool:
    """Returns True if an error says that a trial has failed."""
    # An outage, which ends all running trials, and a lack of machines say nothing about
    # the values that were tried. Whoever deletes the job of a trial wants it ended.
    is_outage = isinstance(error, NotFollowedError | NoRoomError) and not isinstance(error, GoneError)
    return isinstance(error, TrainingError | ConfigurationError) and not is_outage


def _number(oracle_id: str) -> str:
    """Returns a trial's number without the zeros that KerasTuner puts before it."""
    return oracle_id.lstrip("0") or oracle_id[:1]


def _describe(plan: TrialPlan) -> str:
    epochs = f", {plan.epochs} epoch{'s' if plan.epochs > 1 else ''}" if plan.epochs else ""
    continues = f", continues trial {plan.continues}" if plan.continues else ""
    return f"{plan.trial} ({trials.describe(plan.hparams)}{epochs}{continues})"
