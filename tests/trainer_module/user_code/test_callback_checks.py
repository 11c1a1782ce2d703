"""Tests which callbacks of a module are refused before training."""

from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
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


def test_a_callback_that_saves_by_itself_is_refused(monkeypatch):
    monkeypatch.setattr(
        callbacks.module_loader, "load_optional", lambda *_: lambda context: [tf.keras.callbacks.BackupAndRestore("backup")]
    )
    with pytest.raises(ConfigurationError, match=r"^module: callbacks returned a BackupAndRestore.* leave it out: training"):
        callbacks.load(UserModule("m.build_model"), SimpleNamespace(is_chief=True))
