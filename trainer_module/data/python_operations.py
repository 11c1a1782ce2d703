"""Finds calls of Python in TensorFlow graphs, which no other process can run.

`tf.py_function` and `tf.numpy_function` put only a number into the graph, which names a
function of the process that traced it. In another process the number names nothing, or
another function.
"""

import os
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfx_distribute.trainer_module.errors import ConfigurationError

_TYPES = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def find(graph: Any) -> str | None:
    """Returns the name of an operation of a graph that calls Python, if any."""
    definition = graph.as_graph_def() if isinstance(graph, tf.Graph) else graph
    nodes = [definition.node, *(function.node_def for function in definition.library.function)]
    return next((node.name for group in nodes for node in group if node.op in _TYPES), None)


def check_transform_graph(folder: str) -> None:
    """Checks that other processes can run the transform graph in TFT's folder."""
    path = os.path.join(folder, "transform_fn", tf.saved_model.SAVED_MODEL_FILENAME_PB)
    with tf.io.gfile.GFile(path, "rb") as file:
        saved = saved_model_pb2.SavedModel.FromString(file.read())
    for meta_graph in saved.meta_graphs:
        refuse("preprocessing_fn", find(meta_graph.graph_def))


def refuse(caller: str, operation: str | None) -> None:
    """Raises ConfigurationError if there is an operation that calls Python."""
    if operation:
        raise ConfigurationError(
            f"{caller}: the operation {operation} calls Python (tf.py_function, tf.numpy_function), which only this process "
            "can do, so that no server could answer a request; use TensorFlow's own operations"
        )
