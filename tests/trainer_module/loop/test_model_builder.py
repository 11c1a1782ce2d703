"""Tests what is checked of a model when it is built."""

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingJob, TrainingOptions, UserModule
from tfx_distribute.trainer_module.keras import keras_models
from tfx_distribute.trainer_module.loop import model_builder

MODULE = """
import tensorflow as tf

def build_model(size):
    inputs = tf.keras.Input((3, 1), batch_size=size)
    model = tf.keras.Model(inputs, tf.keras.layers.SimpleRNN(1, stateful=size is not None)(inputs))
    model.compile("sgd", "mse")
    return model

def build_sequential(size):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model(tf.zeros([1, 2]))  # its input has this size now
    return model

def build_stateful(size):
    model = tf.keras.Sequential([tf.keras.Input((3, 1), batch_size=size), tf.keras.layers.SimpleRNN(1, stateful=True)])
    model.compile("sgd", "mse")
    return model
"""


def build(tmp_path, size, function="build_model", strategy="one_device", **options):
    name = f"of_{tmp_path.name}"  # a process imports a module once
    (tmp_path / f"{name}.py").write_text(MODULE)
    job = TrainingJob(
        UserModule(f"{name}.{function}", (str(tmp_path),)),
        None,
        Distribution(strategy, accelerator_type="cpu"),
        TrainingOptions(4, epochs=1, **options),
        Outputs("", "", ""),
    )
    return model_builder.build(job, size).model


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        (
            8,
            {},
            "per_replica_batch_size: is 4, but the model takes batches of 8 examples only; write 8, or leave",
        ),
        (
            4,
            {},
            "drop_remainder: the model takes batches of 4 examples only, but batches may differ by",
        ),
        (4, {"function": "build_stateful"}, "drop_remainder: the model takes batches of 4 examples only"),
        (
            4,
            {"strategy": "model_parallel"},
            "module: the model takes batches of 4 examples only, and model_parallel",
        ),
    ],
)
def test_batches_of_another_size_than_the_model_takes_are_refused(tmp_path, size, options, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        build(tmp_path, size, **options)


def test_batches_that_all_have_the_size_that_the_model_takes(tmp_path):
    assert keras_models.fixed_batch_size(build(tmp_path, 4, drop_remainder=True)) == 4


@pytest.mark.parametrize("function", ["build_model", "build_sequential"])
def test_a_model_that_takes_batches_of_any_size(tmp_path, function):
    assert keras_models.fixed_batch_size(build(tmp_path, None, function)) is None
