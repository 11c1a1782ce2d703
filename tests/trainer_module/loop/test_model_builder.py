"""Tests what is checked of a model when it is built."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.loop import model_builder


def functional(size):
    inputs = tf.keras.Input((3, 1), batch_size=size)
    return tf.keras.Model(inputs, tf.keras.layers.SimpleRNN(1, stateful=size is not None)(inputs))


def stateful(size):
    return tf.keras.Sequential([tf.keras.Input((3, 1), batch_size=size), tf.keras.layers.SimpleRNN(1, stateful=True)])


def called(size):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model(tf.zeros([1, 2]))  # its input has this size now
    return model


@pytest.mark.parametrize("make", [functional, stateful])
def test_a_model_of_a_fixed_batch_size_is_refused(make):
    with pytest.raises(ConfigurationError, match="^module: the model takes batches of 4 examples only.*; leave batch_size"):
        model_builder._check_batch_size(make(4))


@pytest.mark.parametrize("make", [functional, called])
def test_a_model_that_takes_batches_of_any_size(make):
    model_builder._check_batch_size(make(None))
