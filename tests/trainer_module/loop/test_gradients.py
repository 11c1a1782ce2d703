"""Tests how gradients are applied."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.loop import gradients


@pytest.mark.parametrize("are_rows", [True, False])
def test_only_updates_of_rows_are_not_compiled(are_rows):
    """Keras 2 compiles both on a GPU, and the former for each number of rows."""
    table, optimizer = tf.Variable(tf.zeros([4, 2])), tf.keras.optimizers.SGD(1.0)
    optimizer.jit_compile = True  # as where there is a GPU
    gradients.prepare(optimizer, [table])
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]), tf.constant([4, 2]))
    gradients.apply(optimizer, {0: rows if are_rows else tf.ones([4, 2])}, [table])
    assert optimizer.jit_compile is not are_rows
    assert table.numpy().tolist() == [[0.0 if are_rows else -1.0] * 2] * 3 + [[-1.0] * 2]
