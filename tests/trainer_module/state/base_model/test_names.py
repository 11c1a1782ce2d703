from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.state.base_model import names, warm_start


def test_automatic_names_are_counted_from_zero():
    paths = ["dense_3/kernel", "dense_5/kernel", "own_4/variable_8", "own_4/variable_9", "own_6/variable_10", "head_2/bias"]
    assert list(names.renumber(paths, {"dense", "own"}, "model").values()) == [
        *("dense/kernel", "dense_1/kernel", "own/variable", "own/variable_1", "own_1/variable", "head_2/bias")
    ]


def test_layers_of_both_directions_are_renumbered(tmp_path):
    def make():
        layers = tf.keras.layers
        inputs = tf.keras.Input((6, 1), name="x")
        hidden = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(inputs)
        model = tf.keras.Model({"x": inputs}, layers.Bidirectional(layers.LSTM(2))(hidden))
        model.compile("adam", "mse")
        return model

    base = make()
    tf.train.Checkpoint(model=base).write(str(tmp_path / "base"))
    model = make()
    job = SimpleNamespace(base_model=str(tmp_path / "base"), training_options=TrainingOptions())
    assert warm_start.apply(job, model, model.optimizer, None, tf.distribute.get_strategy()).weights_taken == 12
    for weight, original in zip(model.weights, base.weights, strict=True):
        np.testing.assert_array_equal(weight, original, err_msg=weight.name)
