"""Tests Hyperband's rounds in which fewer trials succeed than planned."""

from collections import Counter
from collections.abc import Callable

import keras_tuner
import pytest

from tfx_distribute.components.tuner.hyperband import HyperbandOracle

# Epochs of a trial -> the trials of the largest bracket's rounds, of 9 epochs.
WHOLE = {1: 9, 3: 3, 9: 1}


@pytest.fixture
def search(tmp_path) -> Callable:
    """Returns a function that runs a search whose lowest value is the best."""

    def run(fails=(), values=1000, parallel=1, seed=1, oracle=HyperbandOracle):
        space = keras_tuner.HyperParameters()
        space.Choice("units", list(range(values)))
        oracle = oracle(
            objective=keras_tuner.Objective("loss", "min"),
            hyperparameters=space,
            max_epochs=9,
            seed=seed,
            max_consecutive_failed_trials=100,
        )
        oracle.verbose = 0
        oracle._set_project_dir(str(tmp_path), "oracle")
        running, ended = [], []
        while True:
            while len(running) < parallel:
                keys = {key for key, _ in running}
                key = next(key for key in range(parallel) if key not in keys)
                trial = oracle.create_trial(f"worker-{key}")
                if trial.status != "RUNNING":
                    break
                running.append((key, trial))
            if not running:
                return ended
            _, trial = running.pop(0)
            if int(trial.trial_id) in fails:
                trial.status = "FAILED"
            else:
                oracle.update_trial(trial.trial_id, {"loss": float(trial.hyperparameters.values["units"])})
                trial.status = "COMPLETED"
            oracle.end_trial(trial)
            ended.append(oracle.get_trial(trial.trial_id))

    return run


def values(trial) -> dict:
    return trial.hyperparameters.values


def largest_bracket(ended) -> list:
    return [trial for trial in ended if values(trial)["tuner/bracket"] == 2]


def rounds(ended) -> dict[int, int]:
    return dict(Counter(values(trial)["tuner/epochs"] for trial in largest_bracket(ended)))


@pytest.mark.parametrize("parallel", [1, 4])
def test_without_failures_it_makes_the_trials_of_keras_tuner(search, tmp_path, parallel):
    ours = search(parallel=parallel)
    theirs = search(parallel=parallel, oracle=keras_tuner.oracles.HyperbandOracle)
    names = ("units", "tuner/round", "tuner/epochs", "tuner/initial_epoch", "tuner/trial_id")
    assert [[values(trial).get(name) for name in names] for trial in ours] == [
        [values(trial).get(name) for name in names] for trial in theirs
    ]
    assert rounds(ours) == WHOLE


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ({0}, WHOLE),
        ({0, 3, 6}, WHOLE),
        (set(range(7)), {1: 9, 3: 2, 9: 1}),
        (set(range(8)), {1: 9, 3: 1, 9: 1}),
        (set(range(9)), {1: 9}),
    ],
)
def test_failed_trials_count_as_thrown_out(search, fails, expected, parallel):
    ended = search(fails, parallel=parallel)
    assert rounds(ended) == expected
    began = [trial for trial in largest_bracket(ended) if values(trial)["tuner/round"] == 0]
    best = sorted(values(trial)["units"] for trial in began if trial.status == "COMPLETED")
    continued = [values(trial)["units"] for trial in largest_bracket(ended) if values(trial)["tuner/round"] == 1]
    assert sorted(continued) == best[: expected.get(3, 0)]
    assert {values(trial)["tuner/bracket"] for trial in ended} == {0, 1, 2}, "the other brackets follow"


def test_a_continued_trial_that_fails_is_thrown_out_too(search):
    assert rounds(search({9})) == WHOLE
    assert rounds(search({9, 10})) == WHOLE
    assert rounds(search({9, 10, 11})) == {1: 9, 3: 3}


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(("count", "expected"), [(6, {1: 6, 3: 3, 9: 1}), (2, {1: 2, 3: 2, 9: 1})])
def test_the_best_continue_when_the_space_has_no_more_values(search, count, expected, parallel):
    ended = search(values=count, parallel=parallel)
    assert rounds(ended) == expected
    assert values(ended[-1])["units"] == 0


def test_later_brackets_begin_with_the_values_that_are_left(search):
    ended = search(values=11)
    assert rounds(ended) == WHOLE
    others = [trial for trial in ended if values(trial)["tuner/bracket"] == 1]
    assert Counter(values(trial)["tuner/epochs"] for trial in others) == {3: 2, 9: 2}
