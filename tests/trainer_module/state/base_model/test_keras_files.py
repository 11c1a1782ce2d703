"""Takes weights over from Keras files."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.state.base_model import warm_start

K = tf.keras


def start(model: tf.keras.Model, path: Path, **settings):
    """Starts a model from a file."""
    job = SimpleNamespace(base_model=str(path), warm_start=WarmStart(**settings))
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


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5"])
def test_equal_layers_keep_their_weights(tmp_path, name):
    K.backend.clear_session()
    base = make_crossed_model()
    set_noise(base)
    base.save_weights(tmp_path / name) if "weights" in name else base.save(tmp_path / name)
    K.backend.clear_session()
    for _ in range(3):
        make_crossed_model()
    model = make_crossed_model()
    assert start(model, tmp_path / name).weights_taken == 4
    example = {"x": np.arange(6.0, dtype="float32")[None]}
    np.testing.assert_array_equal(model(example), base(example))


@pytest.mark.parametrize("name", ["x.keras", "x.weights.h5"])
def test_optimizer_starts_from_scratch(tmp_path, name):
    def make():
        inputs = K.Input((6,), name="x")
        model = K.Model({"x": inputs}, K.layers.Dense(2, name="head")(inputs))
        model.compile(K.optimizers.Adam(0.5), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    base = make()
    base.fit({"x": np.ones((4, 6))}, np.ones((4, 2)), verbose=0)
    base.optimizer.learning_rate = 0.125
    base.save_weights(tmp_path / name) if "weights" in name else base.save(tmp_path / name)
    model = make()
    assert start(model, tmp_path / name).weights_taken == 2
    np.testing.assert_array_equal(model.get_layer("head").kernel, base.get_layer("head").kernel)
    assert (model.optimizer.iterations.numpy(), float(model.optimizer.learning_rate)) == (0, 0.5)
    assert not any(np.any(variable) for variable in model.optimizer.variables[2:])


class Doubled(K.layers.Layer):
    """A layer of the user's that is not registered with Keras."""

    def build(self, input_shape):
        self.factor = self.add_weight(name="factor", shape=(1,), initializer="ones")

    def call(self, inputs):
        return inputs * self.factor


def test_classes_of_the_model_are_known(tmp_path):
    def make():
        inputs = K.Input((6,), name="x")
        model = K.Model({"x": inputs}, Doubled(name="doubled")(inputs))
        model.compile("adam", "mse")
        return model

    base = make()
    set_noise(base)
    base.save(tmp_path / "x.keras")
    model = make()
    assert start(model, tmp_path / "x.keras").weights_taken == 1
    np.testing.assert_array_equal(model.weights[0], base.weights[0])


def test_weights_of_another_architecture_are_refused(tmp_path):
    make_crossed_model().save_weights(tmp_path / "x.weights.h5")
    inputs = K.Input((6,), name="x")
    other = K.Model({"x": inputs}, K.layers.Dense(2)(inputs))
    other.compile("adam", "mse")
    with pytest.raises(ConfigurationError, match="base_model: Keras cannot load .*x.weights.h5: "):
        start(other, tmp_path / "x.weights.h5")
