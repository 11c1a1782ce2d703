import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.data import python_operations
from tfx_distribute.trainer_module.errors import ConfigurationError


def in_a_loop(values):
    return tf.map_fn(lambda value: tf.numpy_function(np.square, [value], tf.float32), values)


@pytest.mark.parametrize(
    "call",
    [lambda x: tf.py_function(lambda y: y * 2, [x], tf.float32), lambda x: tf.numpy_function(np.square, [x], tf.float32)],
)
def test_calls_of_python_are_found(call):
    graph = tf.function(call).get_concrete_function(tf.TensorSpec([None])).graph
    assert "PyFunc" in python_operations.find(graph)
    with pytest.raises(ConfigurationError, match=r"^module: the operation EagerPyFunc|^module: the operation PyFunc"):
        python_operations.refuse("module", python_operations.find(graph))


def test_operations_of_tensorflow_are_accepted():
    graph = tf.function(lambda x: tf.map_fn(tf.square, x)).get_concrete_function(tf.TensorSpec([None])).graph
    assert python_operations.find(graph) is None
    python_operations.refuse("module", None)


def test_a_transform_graph_is_searched_without_being_loaded(tmp_path):
    module = tf.Module()
    module.transform_fn = tf.function(in_a_loop, [tf.TensorSpec([None])]).get_concrete_function()
    tf.saved_model.save(module, str(tmp_path / "transform_fn"))
    with pytest.raises(ConfigurationError, match=r"^preprocessing_fn: the operation \S*PyFunc calls Python"):
        python_operations.check_transform_graph(str(tmp_path))
