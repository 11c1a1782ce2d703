"""Walks through what objects of the user's module keep."""

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.keras import keras_models

# Their objects keep nothing of the user's but what TensorFlow finds itself.
_LIBRARIES = {*sys.stdlib_module_names, "keras", "numpy", "tensorflow", "tensorflow_transform", "tf_keras", "tfx_distribute"}
_VALUES = (str, bytes, int, float, complex, types.NoneType, np.ndarray, np.generic, tf.Tensor)


def walk(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yields the values in an object's attributes with paths like `networks/teacher/0`.

    Goes through lists, tuples, dictionaries and plain objects, but not into layers,
    metrics, optimizers and other objects of TensorFlow and Keras. Leaves out texts,
    numbers and arrays, of which there may be millions.
    """
    entered = {id(owner): owner}  # it may contain itself
    pending = [
        (name, value)
        for name, value in getattr(owner, "__dict__", {}).items()
        if not name.startswith("_self_")  # what TensorFlow adds to a tf.Module
    ][::-1]
    while pending:
        path, value = pending.pop()
        if isinstance(value, _VALUES) or id(value) in entered:
            continue
        inner = _inner(value)
        if inner is None:
            yield path, value
        else:
            entered[id(value)] = value
            pending += [(f"{path}/{name}", each) for name, each in inner if not isinstance(each, _VALUES)][::-1]


def _inner(value: Any) -> list[tuple[Any, Any]] | None:
    """Returns what a value consists of, with names; None if it is not gone through."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    return list(vars(value).items()) if _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (type, types.ModuleType, tf.__internal__.tracking.Trackable, *keras_models.keras_3_kinds())):
        return False
    if not hasattr(value, "__dict__") or keras_models.is_optimizer(value):
        return False
    return type(value).__module__.partition(".")[0] not in _LIBRARIES
