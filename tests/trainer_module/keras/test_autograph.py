"""Checks that AutoGraph converts tensor branches in the user's code.

In Keras 2, it does under a stock `fit`, too. Keras 3 itself leaves code alone that it
calls, but the loop calls these methods.
"""

import os

import pytest

from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

MODULE = """
import tensorflow as tf

def branch(value):
    if tf.reduce_mean(value) > 1e9:  # a plain `if` on a tensor, which only AutoGraph makes part of a graph
        return -value
    return value

class Schedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        if step < 2:
            return 0.01
        return 0.001

    def get_config(self):
        return {}

class Optimizer(tf.keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        super().update_step(branch(gradient), variable)

class Layer(tf.keras.layers.Layer):
    def call(self, inputs):
        return branch(inputs)

class Regularizer(tf.keras.regularizers.Regularizer):
    def __call__(self, weights):
        return branch(1e-6 * tf.reduce_sum(weights))

class Constraint(tf.keras.constraints.Constraint):
    def __call__(self, weights):
        return branch(weights)

class Metric(tf.keras.metrics.Mean):
    def update_state(self, label, prediction, sample_weight=None):
        super().update_state(branch(tf.reduce_mean(prediction)))

class Loss(tf.keras.losses.Loss):
    def call(self, label, prediction):
        return branch(tf.keras.losses.sparse_categorical_crossentropy(label, prediction))

class Network(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.steps = [
            tf.keras.layers.Dense(8, kernel_regularizer=Regularizer(), kernel_constraint=Constraint()),
            *self.more_steps(),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
        self.compile(Optimizer(Schedule()), Loss(), metrics=[Metric("own")])

    def more_steps(self):
        return []

    def call(self, features):
        value = features["pixels"]
        for step in self.steps:
            value = step(value)
        return value

class Mixin:
    def compute_loss(self, *arguments, **named):
        return branch(super().compute_loss(*arguments, **named))

class ComputesLoss(Mixin, Network):
    pass

class Trains(Network):
    def train_step(self, data):
        results = super().train_step(data)
        return {**results, "loss": branch(results["loss"])}

    def test_step(self, data):
        results = super().test_step(data)
        return {**results, "loss": branch(results["loss"])}

class TrainsInKeras3(tf.keras.Sequential):
    def __init__(self):
        super().__init__([tf.keras.Input([64], name="pixels"), tf.keras.layers.Dense(10, activation="softmax")])
        self.compile("adam", "sparse_categorical_crossentropy")

    def call(self, features, *arguments, **named):
        return super().call(features["pixels"], *arguments, **named)

    def train_step(self, data):
        results = super().train_step(data)
        return {**results, "loss": branch(results["loss"])}

class Layers(Network):
    def more_steps(self):  # the layer of Keras's own has such an `if`, too
        return [Layer(), tf.keras.layers.SpectralNormalization(tf.keras.layers.Dense(8))]

def build_model(context):
    return globals()[context.hparams["kind"]]()
"""
FIT = """
from tfx_distribute.trainer_module.keras import autograph
autograph.exempt_libraries()
import branches
import numpy as np
model = branches.Layers()
autograph.exempt_libraries()  # a second call changes nothing
data = {"pixels": np.ones((8, 64), "float32")}, np.ones((8, 1), "int64")
model.fit(*data, epochs=3, verbose=0, validation_data=data)
assert np.isclose(float(model.optimizer.learning_rate), 0.001)
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "branches.py").write_text(MODULE)
    return tmp_path


def test_fit_of_a_run_fn_takes_tensor_branches(forked_trainings, module):
    with (module / "log").open("wb") as log:
        process = forked_trainings.start(["-c", FIT], os.environ, module, log)
    assert process.wait(280) == 0, (module / "log").read_text()[-4000:]


@pytest.mark.parametrize(("kind", "keras_version"), [("ComputesLoss", 2), ("Trains", 2), ("TrainsInKeras3", 3)])
def test_the_loop_takes_tensor_branches(cluster, module, kind, keras_version):
    result = cluster.train(
        Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
        TrainingOptions(16, train_steps=3, keras_version=keras_version),
        module=UserModule("branches.build_model", (str(module),)),
        hparams={"kind": kind},
    )
    assert result.train_steps == 3
