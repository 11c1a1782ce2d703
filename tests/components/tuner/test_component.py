"""Tests the Tuner component: its arguments, and what it refuses."""

import json

import pytest
from tfx import types
from tfx.components.tuner.component import Tuner as StockTuner
from tfx.orchestration import data_types
from tfx.types import standard_artifacts

from tfx_distribute.components import Search, Trainer, Tuner, ValueRange
from tfx_distribute.components.trainer.component import TrainerSpec
from tfx_distribute.components.tuner.component import TunerSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

SEARCH = Search(objective="val_loss", space={"units": ValueRange(min=1, max=8)}, max_trials=3)


def examples() -> types.Channel:
    return types.Channel(type=standard_artifacts.Examples)


def test_it_has_the_outputs_of_tfx_and_the_parameters_of_the_trainer():
    assert StockTuner.SPEC_CLASS.OUTPUTS == TunerSpec.OUTPUTS
    assert set(TunerSpec.PARAMETERS) - set(TrainerSpec.PARAMETERS) == {"tune"}
    tuner = Tuner(SEARCH, examples(), build_model="m.build_model", label="y", epochs=3, hparams={"units": 4})
    assert Search.model_validate_json(tuner.exec_properties["tune"]) == SEARCH
    assert (tuner.exec_properties["epochs"], json.loads(tuner.exec_properties["hparams"])) == (3, {"units": 4})
    Trainer(examples(), build_model="m.build_model", label="y", hyperparameters=tuner.outputs["best_hyperparameters"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hparams": {"unit": 1}}, "tune.space.units: trainer.hparams has no such hyperparameter; it has unit"),
        ({"build_model": None}, "exactly one of module_file and build_model must be supplied"),
        ({"strategy": "none"}, "strategy: "),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Tuner(
            SEARCH,
            examples(),
            **{"build_model": "m.build_model", "label": "y", "epochs": 3, "hparams": {"units": 4}, **arguments},
        )


def test_hyperparameters_of_a_run_are_checked_when_it_runs():
    parameter = data_types.RuntimeParameter("hparams", str)
    tuner = Tuner(SEARCH, examples(), build_model="m.build_model", label="y", hparams=parameter)
    assert tuner.exec_properties["hparams"] is parameter


def test_run_fn_is_refused(tmp_path):
    (tmp_path / "m.py").write_text("def run_fn(fn_args): ...\n")
    with pytest.raises(ConfigurationError, match="the results of a run_fn have no metrics to compare"):
        Tuner(SEARCH, examples(), module_file=str(tmp_path / "m.py"), hparams={"units": 4})
