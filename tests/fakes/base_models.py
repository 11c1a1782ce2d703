"""Saves a model in every kind of file, and starts another one from each.

`python base_models.py KERAS_VERSION FOLDER`, since a process has one generation of
Keras. Prints a line for each kind.
"""

import os
import sys
from types import SimpleNamespace

os.environ["TF_USE_LEGACY_KERAS"] = "1" if sys.argv[1] == "2" else "0"

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.keras import autograph
from tfx_distribute.trainer_module.state.base_model import warm_start, weight_files

K = tf.keras


class Block(K.Model):
    """A subclassed model, with layers in attributes and in a list."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = K.layers.Dense(3)
        self.others = [K.layers.Dense(4), K.layers.BatchNormalization()]
        self.own = self.add_weight(name="own", shape=(2,), initializer="ones")

    def call(self, inputs, training=None):
        outputs = self.first(inputs)
        for layer in self.others:
            outputs = layer(outputs, training=training) if "batch" in layer.name else layer(outputs)
        return outputs + tf.reduce_sum(self.own)


def make_model():
    """Nested, sequential, subclassed and recurrent layers; two of the same name."""
    inner = K.Input((5,))
    encoder = K.Model(inner, K.layers.Dense(4, name="dense")(inner), name="encoder")
    inputs = K.Input((5,), name="x")
    normalized = K.layers.Normalization()
    hidden = encoder(normalized(inputs))
    hidden = K.layers.Bidirectional(K.layers.SimpleRNN(3))(K.layers.Reshape((4, 1))(hidden))
    hidden = Block()(hidden)
    hidden = K.Sequential([K.layers.Dense(3), K.layers.Dropout(0.5), K.layers.Dense(2)])(hidden)
    model = K.Model({"x": inputs}, K.layers.Dense(1, name="dense")(hidden))
    model.compile("adam", "mse")
    normalized.adapt(np.arange(50.0).reshape(10, 5))
    return model


def set_noise(model) -> None:
    """Gives every weight values of its own."""
    generator = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(generator.uniform(0.5, 1.0, weight.shape).astype(tf.as_dtype(weight.dtype).as_numpy_dtype))
    for layer in model.layers:
        if isinstance(layer, K.layers.Normalization):
            layer.finalize_state()


def main(folder: str) -> None:
    autograph.exempt_libraries()  # as in each training process; converting Keras 2 takes most of the time
    keras_3 = sys.argv[1] == "3"
    base = make_model()
    set_noise(base)
    example = {"x": np.ones((2, 5), "float32")}
    expected = base(example).numpy()
    for kind in ("saved_model", "x.keras", "x.weights.h5", "export"):
        path = f"{folder}/{kind}"
        if kind == "saved_model":
            weight_files.name_weights(base)
            tf.saved_model.save(base, path) if keras_3 else base.save(path, save_format="tf")
        elif kind == "export":
            base.export(path)
        elif kind == "x.weights.h5":
            base.save_weights(path)
        else:
            base.save(path)
        model = make_model()  # the second model of a process has other automatic names
        job = SimpleNamespace(base_model=path, warm_start=WarmStart())
        result = warm_start.apply(job, model, model.optimizer, None)
        assert (result.weights_taken, result.weights_skipped) == (len(base.weights), 0)
        for weight, original in zip(model.weights, base.weights, strict=True):
            np.testing.assert_array_equal(weight.numpy(), original.numpy(), err_msg=weight.name)
        np.testing.assert_array_equal(model(example).numpy(), expected)
        print(f"{kind}: equal")


if __name__ == "__main__":
    main(sys.argv[2])
