"""Takes weights over from files of Keras, whose keys are classes and numbers."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.state.base_model import warm_start

K = tf.keras


def start(model: tf.keras.Model, path: Path):
    """Starts a model from a file."""
    job = SimpleNamespace(base_model=str(path), training_options=TrainingOptions())
    return warm_start.apply(job, model, model.optimizer, None, tf.distribute.get_strategy())


def set_noise(model: tf.keras.Model) -> None:
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.uniform(0.5, 1.0, weight.shape))


def make_crossed_model() -> tf.keras.Model:
    """Returns a model whose equal layers are made in another order than used."""
    inputs = K.Input((6,), name="x")
    last, first = K.layers.Dense(6), K.layers.Dense(6)
    model = K.Model({"x": inputs}, last(first(inputs)))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5", "x.h5"])
@pytest.mark.parametrize("others", [0, 3])
def test_equal_layers_keep_their_weights(tmp_path, name, others):
    """A file of weights has no names of layers, only their order."""
    K.backend.clear_session()
    base = make_crossed_model()
    set_noise(base)
    base.save_weights(tmp_path / name) if "weights" in name else base.save(tmp_path / name)
    K.backend.clear_session()
    for _ in range(others):
        make_crossed_model()
    model = make_crossed_model()
    assert start(model, tmp_path / name).weights_taken == 4
    example = {"x": np.arange(6.0, dtype="float32")[None]}
    np.testing.assert_array_equal(model(example), base(example))


class Tied(K.layers.Layer):
    """Multiplies by the transposed kernel of another layer, which it saves too."""

    def __init__(self, other: K.layers.Dense):
        super().__init__()
        self.other_kernel = other.kernel

    def get_config(self):
        return {}

    def call(self, inputs):
        return tf.matmul(inputs, self.other_kernel, transpose_b=True)


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5"])
def test_weights_that_a_file_has_twice_are_taken_once(tmp_path, name):
    def make():
        inputs = K.Input((6,), name="x")
        dense = K.layers.Dense(6)
        hidden = K.layers.SpectralNormalization(K.layers.Dense(6))(dense(inputs))
        model = K.Model({"x": inputs}, K.layers.Dense(2)(Tied(dense)(hidden)))
        model.compile("adam", "mse")
        return model

    K.backend.clear_session()
    base = make()
    set_noise(base)
    base.save_weights(tmp_path / name) if "weights" in name else base.save(tmp_path / name)
    model = make()
    result = start(model, tmp_path / name)
    assert (result.weights_taken, result.weights_skipped) == (len(base.weights), 0)
    for weight, original in zip(model.weights, base.weights, strict=True):
        np.testing.assert_array_equal(weight, original, err_msg=weight.name)
