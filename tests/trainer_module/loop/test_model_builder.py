"""Tests what is checked of a model when it is built."""

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingJob, TrainingOptions, UserModule
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


def build(tmp_path, size, function):
    name = f"of_{tmp_path.name}"  # a process imports a module once
    (tmp_path / f"{name}.py").write_text(MODULE)
    job = TrainingJob(
        UserModule(f"{name}.{function}", (str(tmp_path),)),
        None,
        Distribution("one_device", accelerator_type="cpu"),
        TrainingOptions(4, epochs=1),
        Outputs("", "", ""),
    )
    model_builder.build(job, size)


@pytest.mark.parametrize("function", ["build_model", "build_stateful"])
def test_a_model_of_a_fixed_batch_size_is_refused(tmp_path, function):
    with pytest.raises(ConfigurationError, match="^module: the model takes batches of 4 examples only.*; leave batch_size"):
        build(tmp_path, 4, function)


@pytest.mark.parametrize("function", ["build_model", "build_sequential"])
def test_a_model_that_takes_batches_of_any_size(tmp_path, function):
    build(tmp_path, None, function)
