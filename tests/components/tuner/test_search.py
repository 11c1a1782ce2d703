"""Tests the description of a search: its JSON, its checks, the length of a trial."""

from dataclasses import replace

import pytest

from tfx_distribute.components.tuner import search as search_lib
from tfx_distribute.components.tuner.search import Search, ValueRange
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions

HPARAMS = {"rate": 0.1, "units": 16, "wide": False, "kind": "relu", "layers": [1, 2], "act": None}
RATE = {"rate": ValueRange(min=0.001, max=1, sampling="log")}


def search(space=None, **changes) -> Search:
    return Search(**{"objective": "val_loss", "space": space or RATE, "max_trials": 3, **changes})


def test_types_of_values_survive_json():
    space = {
        "rate": ValueRange(values=(0.1, 1.0)),
        "units": ValueRange(min=1, max=9, step=2),
        "wide": ValueRange(values=(True, False)),
        "kind": ValueRange(values=("relu", "1")),
    }
    read = Search.model_validate_json(search(space).model_dump_json())
    assert read == search(space)
    assert [type(value) for values in read.space.values() for value in values.values] == [float, float, bool, bool, str, str]


@pytest.mark.parametrize(
    ("objective", "goal"), [("val_loss", "min"), ("my_Loss", "min"), ("accuracy", "max"), ("val_auc", "max"), ("mse", "")]
)
def test_direction_follows_from_the_name_of_a_loss_or_an_accuracy(objective, goal):
    assert search(objective=objective).goal == goal
    assert search(objective=objective, direction="max").goal == "max"


@pytest.mark.parametrize(
    "space",
    [
        {"rate": ValueRange(values=(1, 0.5))},
        {"units": ValueRange(min=1, max=64, step=2, sampling="log")},
        {"wide": ValueRange(values=(True, False)), "kind": ValueRange(values=("relu", "elu"))},
    ],
)
def test_good_spaces(space):
    search_lib.check(search(space), HPARAMS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "val_mse"}, "tune.direction: is missing; 'val_mse' does not say whether more is better"),
        ({"max_trials": 0}, "tune.max_trials: is missing; write how many trials random may make"),
        ({"oracle": "hyperband"}, "tune.max_trials: hyperband decides on the number of trials"),
        ({"oracle": "hyperband", "max_trials": 0, "train_steps": 9}, "tune.train_steps: hyperband counts in epochs"),
        ({"epochs": 1, "train_steps": 9}, "tune.train_steps: the length is given twice"),
        (
            {"space": {"rat": ValueRange(values=(1,))}},
            "tune.space.rat: trainer.hparams has no such hyperparameter; it has act, kind, layers, rate, units, wide",
        ),
        (
            {"space": {"per_replica_batch_size": ValueRange(values=(16, 32))}},
            "tune.space.per_replica_batch_size: is a pipeline parameter, which is the same in all trials",
        ),
        ({"space": {"units": ValueRange(values=(1, 2.5))}}, "tune.space.units: 2.5 is not a whole number, as its default"),
        ({"space": {"units": ValueRange(values=(1, True))}}, "tune.space.units: True is not a whole number"),
        ({"space": {"units": ValueRange(min=1, max=2.5)}}, "tune.space.units: max: 2.5 is not a whole number"),
        ({"space": {"kind": ValueRange(min=1, max=2)}}, "tune.space.kind: its default in trainer.hparams, 'relu', is not"),
        ({"space": {"wide": ValueRange(values=(1, 0))}}, "tune.space.wide: 1 is not true or false"),
        ({"space": {"rate": ValueRange(values=(1,), max=2)}}, "tune.space.rate: has values and a range"),
        ({"space": {"rate": ValueRange(max=2)}}, "tune.space.rate: write values, or min and max"),
        ({"space": {"rate": ValueRange(min=2, max=2)}}, "tune.space.rate: min is 2, and max is 2; write a larger max"),
        ({"space": {"rate": ValueRange(min=0, max=2, sampling="log")}}, "sampling log needs more than 0"),
        ({"space": {"rate": ValueRange(min=0, max=2, step=0)}}, "step is 0; write more than 0 with sampling linear"),
        ({"space": {"units": ValueRange(min=1, max=2, step=1, sampling="log")}}, "write more than 1 with sampling log"),
        (
            {"space": {"act": ValueRange(values=("relu",))}},
            "tune.space.act: its default in trainer.hparams, None, is not text",
        ),
        ({"space": {"layers": ValueRange(values=(1, 2))}}, "tune.space.layers: its default in trainer.hparams, [1, 2], is"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(ConfigurationError) as error:
        search_lib.check(search(**changes), HPARAMS)
    assert message in str(error.value)


def test_length_of_a_trial_replaces_that_of_the_trainer():
    options = TrainingOptions(train_steps=100, steps_per_epoch=10)
    assert search_lib.trial_options(search(), options) == options
    by_epochs = search_lib.trial_options(search(epochs=2), options)
    assert (by_epochs.epochs, by_epochs.train_steps, by_epochs.steps_per_epoch) == (0, 20, 10), "of the same length"
    by_passes = search_lib.trial_options(search(epochs=2), TrainingOptions(train_steps=100))
    assert (by_passes.epochs, by_passes.train_steps) == (2, 0)
    by_steps = search_lib.trial_options(search(train_steps=7), TrainingOptions(epochs=3, profile_steps="1,2"))
    assert by_steps == TrainingOptions(train_steps=7), "and trials are not profiled"
    hyperband = search(oracle="hyperband", max_trials=0)
    assert search_lib.trial_options(hyperband, options) == options
    assert search_lib.count_epochs(options) == 10
    with pytest.raises(ConfigurationError, match="tune.epochs: is missing; hyperband gives poor trials fewer epochs"):
        search_lib.trial_options(hyperband, TrainingOptions(train_steps=100))


@pytest.mark.parametrize(("direction", "mode"), [("max", "min"), ("max", ""), ("min", "max")])
def test_trials_are_not_compared_by_their_worst_evaluation(direction, mode):
    options = TrainingOptions(epochs=3, export_best="val_loss", export_mode=mode)
    with pytest.raises(ConfigurationError, match=f"^export_mode: is {mode or 'min'}, and .* write export_mode: {direction}"):
        search_lib.trial_options(search(direction=direction), options)
    good = {"max": "max", "min": ""}[direction]
    search_lib.trial_options(search(direction=direction), replace(options, export_mode=good))


def test_only_what_affects_the_trials_is_part_of_their_fingerprint():
    more = search(max_trials=9, num_parallel_trials=2, max_consecutive_failed_trials=1)
    assert more.decisive_settings() == search().decisive_settings()
    assert search(seed=1).decisive_settings() != search().decisive_settings()


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (ValueRange(min=0.0, max=0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (ValueRange(min=0.1, max=0.3, step=0.2), [0.1, 0.3]),
        (ValueRange(min=-0.3, max=0.3, step=0.3), [-0.3, 0.0, 0.3]),
        (ValueRange(min=0, max=1, step=0.4), [0.0, 0.4, 0.8]),
        (ValueRange(min=0, max=1, step=1 / 11), [pytest.approx(index / 11) for index in range(11)] + [1.0]),
        (ValueRange(min=0.001, max=1.0, step=10, sampling="log"), [0.001, 0.01, 0.1, 1.0]),
        (ValueRange(min=0.001, max=0.9, step=10, sampling="log"), [0.001, 0.01, 0.1]),
        (ValueRange(min=0.1, max=0.8, step=2, sampling="reverse_log"), [0.8, 0.7, 0.5, 0.1]),
    ],
)
def test_steps_end_with_max_if_they_reach_it(values, numbers):
    assert search_lib.list_steps(values) == numbers
    search_lib.check(search({"rate": values}), HPARAMS)
