"""Tests which callbacks of a module are refused before training."""

from types import SimpleNamespace
from unittest.mock import Mock

import keras
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.user_code import callbacks


@pytest.mark.parametrize(
    "returned",
    [
        None,
        "TerminateOnNaN",
        tf.keras.callbacks.TerminateOnNaN,
        tf.keras.callbacks.TerminateOnNaN(),
        [tf.keras.callbacks.TerminateOnNaN],
        [tf.keras.callbacks.TerminateOnNaN(), "CSVLogger"],
    ],
)
def test_callbacks_of_other_types_are_refused(returned):
    with pytest.raises(ConfigurationError, match=r"^module: callbacks returned .*; return a list of callbacks, such as"):
        callbacks._as_list(returned)


@pytest.mark.parametrize("collect", [list, tuple, iter])
def test_callbacks_in_any_collection(collect):
    one = keras.callbacks.TerminateOnNaN()  # of whichever Keras
    assert callbacks._as_list(collect([one])) == [one]


@pytest.mark.parametrize(
    ("callback", "strategy", "message"),
    [
        (
            tf.keras.callbacks.BackupAndRestore("backup"),
            tf.distribute.Strategy,
            "a BackupAndRestore.* leave it out: training is saved every save_checkpoints_secs",
        ),
        (
            tf.keras.callbacks.TensorBoard("logs", histogram_freq=1),
            MeshStrategy,
            "a TensorBoard with histogram_freq.* write histogram_freq=0",
        ),
    ],
)
def test_callbacks_that_cannot_work_are_refused(monkeypatch, callback, strategy, message):
    monkeypatch.setattr(callbacks.module_loader, "load_optional", lambda *_: lambda context: [callback])
    with pytest.raises(ConfigurationError, match=f"^module: callbacks returned {message}"):
        callbacks.load(UserModule("m.build_model"), SimpleNamespace(is_chief=True), Mock(spec=strategy))
