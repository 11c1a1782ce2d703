"""Tests searches with KerasTuner's oracles on trainings that are formulas.

tests/e2e/test_tuning.py has searches whose trials train.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from running import wait_until
from training import make_job

from tfx_distribute.components.launchers.errors import GoneError, NoAnswerError, NoRoomError
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.components.tuner import search_run
from tfx_distribute.components.tuner.search import Search, ValueRange
from tfx_distribute.components.tuner.search_run import SEARCH_FILE, STATE, SearchRun
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingOptions, TrainingResult

SPACE = {"rate": ValueRange(min=0.001, max=1.0, sampling="log"), "units": ValueRange(min=1, max=64)}
HPARAMS = {"rate": 0.1, "units": 8, "kind": "relu", "wide": False}
JOB = make_job(training_options=TrainingOptions(epochs=9), hparams=HPARAMS)


def loss(job: TrainingJob) -> float:
    """Is 0 for rate 0.1 and 32 units, and falls with each epoch."""
    rate, units = job.hparams["rate"], job.hparams["units"]
    return (math.log10(rate) + 1) ** 2 + ((units - 32) / 32) ** 2 + 1 / job.training_options.epochs


class Trainings:
    """Trains by a formula; notes what it was asked for."""

    def __init__(self, formula=loss, end_after: int = 1000):
        self.jobs: list[TrainingJob] = []
        self.names: list[str] = []
        self._formula = formula
        self._end_after = end_after

    def __call__(self, job: TrainingJob, trial: str, is_stopped) -> TrainingResult:
        if len(self.jobs) == self._end_after:
            raise KeyboardInterrupt
        self.jobs.append(job)
        self.names.append(trial)
        Path(job.outputs.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        return TrainingResult(1, 32, 10 * job.training_options.epochs, 1.0, {"val_loss": self._formula(job), "loss": 1.0})


@pytest.fixture
def run(tmp_path):
    """Returns a function that makes an attempt of the search in `tmp_path`."""
    attempts = iter(range(100))

    def make(trainings, **changes) -> SearchRun:
        search = Search(**{"objective": "val_loss", "space": SPACE, "max_trials": 5, **changes})
        return SearchRun(search, JOB, str(tmp_path), str(tmp_path.parent / f"{tmp_path.name}-{next(attempts)}"), trainings)

    return make


def tried(trainings: Trainings) -> list[tuple[float, int]]:
    return [(job.hparams["rate"], job.hparams["units"]) for job in trainings.jobs]


@pytest.mark.parametrize("parallel", [1, 3])
def test_random_search(run, tmp_path, parallel):
    trainings = Trainings()
    search = run(trainings, num_parallel_trials=parallel)
    result = search.run()
    assert len(set(tried(trainings))) == len(result.trials) == 5
    assert all(0.001 <= rate <= 1 and 1 <= units <= 64 and type(units) is int for rate, units in tried(trainings))
    assert [trial.score for trial in result.trials] == sorted(loss(job) for job in trainings.jobs)
    best = json.loads(search.best_hyperparameters())
    assert best["values"] == result.trials[0].hparams
    assert [entry["config"]["name"] for entry in best["space"]] == ["rate", "units"]
    assert all(job.hparams["kind"] == "relu" and not job.outputs.serving_model_dir for job in trainings.jobs)
    assert not list(tmp_path.glob(f"*/{STATE}")), "no later trial continues from them"


@pytest.fixture
def announced(monkeypatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(search_run, "announce", messages.append)
    return messages


def test_search_ends_when_all_values_have_been_tried(run, announced):
    """They have the types of the defaults."""
    space = {
        "rate": ValueRange(values=(1, 2)),
        "wide": ValueRange(values=(False, True)),
        "kind": ValueRange(values=("relu", "elu")),
    }
    trainings = Trainings(lambda job: 1.0)
    run(trainings, space=space, max_trials=9).run()
    assert len(trainings.jobs) == 8
    assert {tuple(type(job.hparams[name]) for name in space) for job in trainings.jobs} == {(float, bool, str)}
    assert announced[-1] == "the search tried 8 combinations of values, not 9: it found no others in tune.space"


def test_bayesian_search_repeats_no_trial_and_keeps_to_the_range(run, announced):
    trainings = Trainings(lambda job: -job.hparams["units"])
    space = {"units": ValueRange(min=1, max=6, sampling="log")}
    run(trainings, space=space, max_trials=8, oracle="bayesian").run()
    assert sorted(job.hparams["units"] for job in trainings.jobs) == [1, 2, 3, 4, 5, 6]
    assert announced[-1] == "the search tried 6 combinations of values, not 8: it found no others in tune.space"


def test_bayesian_search_does_not_repeat_failed_trials(run):
    trainings = Trainings(fails_above_8_units)
    space = {"units": ValueRange(min=2, max=10)}
    run(trainings, space=space, max_trials=9, oracle="bayesian", direction="max").run()
    assert sorted(job.hparams["units"] for job in trainings.jobs) == list(range(2, 11))


@pytest.mark.parametrize("oracle", ["random", "bayesian"])
def test_next_attempt_repeats_no_trial(run, oracle):
    whole, first, second = Trainings(), Trainings(end_after=7), Trainings()
    with pytest.raises(KeyboardInterrupt):
        run(first, max_trials=9, oracle=oracle).run()
    result = run(second, max_trials=9, oracle=oracle).run()
    assert first.names + second.names == list("012345678")
    assert len(result.trials) == 9
    assert len(set(tried(first) + tried(second))) == 9
    if oracle == "random":
        (Path(first.jobs[0].outputs.model_run_dir).parents[1] / SEARCH_FILE).unlink()
        run(whole, max_trials=9).run()
        assert tried(whole) == tried(first) + tried(second), "as without the interrupt"


@pytest.mark.parametrize("parallel", [1, 2])
def test_trials_are_launched_with_the_settings_of_the_search(run, parallel):
    seen = []

    def launch(job: TrainingJob, trial: str, is_stopped) -> TrainingResult:
        seen.append(local_launcher.current_settings().gpus)
        return TrainingResult(1, 32, 10, 1.0, {"val_loss": 1.0})

    with local_launcher.settings(local_launcher.LocalLauncherSettings(gpus=("7",))):
        run(launch, num_parallel_trials=parallel).run()
    assert seen == [("7",)] * 5


def test_an_interrupt_stops_the_trials_that_train(tmp_path):
    def launch(job: TrainingJob, trial: str, is_stopped) -> TrainingResult:
        if trial == "0":
            raise KeyboardInterrupt
        wait_until(is_stopped)
        raise TerminatedError

    search = Search(objective="val_loss", space=SPACE, max_trials=5, num_parallel_trials=2)
    with pytest.raises(KeyboardInterrupt):
        SearchRun(search, JOB, str(tmp_path), str(tmp_path / "oracle"), launch).run()


def test_hyperband_continues_the_best_trials(run, tmp_path):
    trainings = Trainings()
    search = run(trainings, oracle="hyperband", max_trials=0)
    result = {trial.trial: trial for trial in search.run().trials}
    jobs = dict(zip(trainings.names, trainings.jobs, strict=True))
    assert {job.training_options.epochs for job in trainings.jobs} == {1, 3, 9}
    continued = [trial for trial in result.values() if trial.continues]
    assert continued
    for trial in continued:
        previous = result[trial.continues]
        assert (trial.hparams, trial.epochs) == (previous.hparams, 3 * previous.epochs)
        assert jobs[trial.trial].outputs.checkpoint_dir == jobs[trial.continues].outputs.checkpoint_dir
        siblings = [other for other in result.values() if other.epochs == previous.epochs and not other.continues]
        assert previous.continues or previous.score < sorted(other.score for other in siblings)[-1]
    assert all(job.outputs.saves_end for job in trainings.jobs)
    assert not any(name.startswith("tuner/") for job in trainings.jobs for name in job.hparams)
    assert not any(name.startswith("tuner/") for name in json.loads(search.best_hyperparameters())["values"])
    assert list(tmp_path.glob(f"trial-0/{STATE}")), "a later attempt may continue from it"


@pytest.mark.parametrize("values", [8, 9])
def test_hyperband_says_if_it_continues_no_trial(run, announced, values):
    """KerasTuner ends without continuing any trial if it finds no new values."""
    trainings = Trainings(lambda job: 1.0)
    run(trainings, space={"units": ValueRange(min=1, max=values)}, oracle="hyperband", max_trials=0).run()
    is_short = {job.training_options.epochs for job in trainings.jobs} == {1}
    assert is_short == announced[-1].startswith("tune.space: it has fewer combinations of values") == (values == 8)


def test_failed_trials_count_as_the_worst_of_their_round(run):
    trainings = Trainings(lambda job: float("nan") if job.hparams["units"] % 2 else loss(job))
    search = run(trainings, oracle="hyperband", max_trials=0, max_consecutive_failed_trials=20, seed=1)
    result = search.run().trials
    epochs = [job.training_options.epochs for job in trainings.jobs]
    assert {1: epochs.count(1), 3: epochs.count(3), 9: epochs.count(9)} == {1: 9, 3: 8, 9: 6}, "as without failures"
    assert {trial.status for trial in result if trial.hparams["units"] % 2} == {"FAILED"}
    assert result[0].score is not None
    assert json.loads(search.best_hyperparameters())["values"] == result[0].hparams


def fails_above_8_units(job: TrainingJob) -> float:
    if job.hparams["units"] > 8:
        raise TrainingError("training process chief failed\n  more than 8 units\n  are too many")
    return float("nan") if job.hparams["units"] == 4 else loss(job)


def test_failed_trials_count_and_the_search_goes_on(run):
    trainings = Trainings(fails_above_8_units)
    space = {"units": ValueRange(values=(1, 2, 4, 16))}
    search = run(trainings, space=space, max_trials=4)
    result = search.run()
    assert {trial.hparams["units"]: trial.message for trial in result.trials if trial.status == "FAILED"} == {
        16: "training process chief failed\n  more than 8 units\n  are too many",
        4: "val_loss is nan",
    }
    assert json.loads(search.best_hyperparameters())["values"] == {"units": 2}


def test_too_many_failed_trials_end_the_search(run):
    space = {"units": ValueRange(min=9, max=64)}
    trainings, again = Trainings(fails_above_8_units), Trainings()
    with pytest.raises(TrainingError) as error:
        run(trainings, space=space, max_consecutive_failed_trials=2).run()
    assert "tune.max_consecutive_failed_trials: 2 trials have failed one after another" in str(error.value)
    assert "are too many" in str(error.value)
    assert len(trainings.jobs) == 2
    # What made them fail may have been remedied.
    run(again, space=space, max_consecutive_failed_trials=2).run()
    assert again.names == list("01234")


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("kind", [NoAnswerError, NoRoomError])
def test_an_outage_is_not_a_failed_trial(run, parallel, kind):
    """The trials that it interrupts have not ended: the next attempt continues them."""

    def lose_the_service(job: TrainingJob) -> float:
        if len(trainings.jobs) > 2:
            raise kind("the Kubernetes API server did not answer for 600 s; the last error: none")
        return loss(job)

    trainings, again = Trainings(lose_the_service), Trainings()
    with pytest.raises(kind, match="did not answer for 600 s"):
        run(trainings, num_parallel_trials=parallel, max_consecutive_failed_trials=1).run()
    result = run(again, num_parallel_trials=parallel, max_consecutive_failed_trials=1).run()
    assert again.names[0] in trainings.names, "it had not ended"
    assert [trial.status for trial in result.trials] == ["COMPLETED"] * 5


def test_trials_that_have_ended_are_not_repeated(run):
    """Not the last one either, if the results could not be written."""
    first, again = Trainings(), Trainings()
    run(first).run()
    assert len(run(again).run().trials) == 5
    assert again.names == []


def test_a_trial_that_ends_without_the_objective_has_failed(run):
    """Such as one that a callback ends before its first evaluation."""
    trainings = Trainings()

    def without_evaluation(job: TrainingJob, trial: str, is_stopped) -> TrainingResult:
        result = trainings(job, trial, is_stopped)
        return replace(result, metrics={"loss": math.nan}) if trial == "2" else result

    result = run(without_evaluation).run()
    assert [(trial.trial, trial.message) for trial in result.trials if trial.score is None] == [
        ("2", "it ended without val_loss")
    ]


def test_a_trial_whose_job_somebody_deletes_has_failed(run):
    def lose_the_second(job: TrainingJob) -> float:
        if len(trainings.jobs) == 2:
            raise GoneError("TFJob digits-1-trial-1 is gone: somebody has deleted it while it was training")
        return loss(job)

    trainings = Trainings(lose_the_second)
    statuses = [trial.status for trial in run(trainings).run().trials]
    assert (statuses.count("FAILED"), statuses.count("COMPLETED")) == (1, 4)


def test_search_without_success_fails(run):
    space, again = {"units": ValueRange(values=(16, 32))}, Trainings()
    with pytest.raises(TrainingError, match="tune: none of the 2 trials succeeded; the last one, 1: training process chief"):
        run(Trainings(fails_above_8_units), space=space).run()
    run(again, space=space).run()
    assert again.names == ["0", "1"], "what made them fail may have been remedied"


def test_unknown_objective_ends_the_search_at_once(run):
    trainings = Trainings()
    with pytest.raises(ConfigurationError, match="tune.objective: training reports no 'val_acc'; it reports loss, val_loss"):
        run(trainings, objective="val_acc", direction="max").run()
    assert len(trainings.jobs) == 1


@pytest.mark.parametrize("oracle", ["random", "bayesian"])
def test_steps_are_tried_up_to_max(run, oracle):
    trainings = Trainings(lambda job: abs(job.hparams["rate"] - 0.3))
    space = {"rate": ValueRange(min=0, max=0.3, step=0.1)}
    assert run(trainings, space=space, oracle=oracle, max_trials=4, seed=1).run().trials[0].hparams == {"rate": 0.3}
    assert {type(job.hparams["rate"]) for job in trainings.jobs} == {float}
