"""Finds what a task keeps besides its model, for the saved state.

Examples are a teacher network that follows the model, a moving average, and a generator
of random numbers.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras import attributes, keras_models


def find(task: Any, elsewhere: Collection[Any]) -> dict[str, Any]:
    """Returns the parts of a task that have variables, or may have some, by path.

    Parts are variables, Keras objects, generators and other objects that TensorFlow can
    save, each once and the same in every process. Those in `elsewhere` are left out.
    """
    left_out = {id(part) for part in elsewhere}
    parts: dict[str, Any] = {}
    for path, value in attributes.walk(task):
        if _is_part(value) and not _is_among(left_out, value):
            left_out.add(id(value))
            parts[path] = value
    return dict(sorted(parts.items()))


def state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parts as `tf.train.Checkpoint` can save them.

    In Keras 3, it does not see all variables of an object, see `keras_models.state`.
    """
    saved: dict[str, Any] = {}
    for path, part in parts.items():
        if isinstance(part, tf.__internal__.tracking.Trackable):
            saved[path] = part
        if isinstance(part, keras_models.keras_3_kinds()):
            saved |= {f"{path}/variables/{index}": each.value for index, each in enumerate(_keras_3_variables(part))}
    return saved


def _is_part(value: Any) -> bool:
    # A new process reads from the beginning; TensorFlow cannot save every iterator.
    reads = isinstance(value, tf.data.Dataset | tf.data.Iterator | tf.distribute.DistributedIterator)
    return not reads and isinstance(value, (tf.__internal__.tracking.Trackable, *keras_models.keras_3_kinds()))


def _is_among(identities: Collection[int], part: Any) -> bool:
    if id(part) in identities:
        return True
    variables = _keras_3_variables(part) if isinstance(part, keras_models.keras_3_kinds()) else ()
    return bool(variables) and all(id(each.value) in identities for each in variables)


def _keras_3_variables(part: Any) -> list[Any]:
    if isinstance(part, tf.keras.random.SeedGenerator):
        return [part.state]
    return [part] if isinstance(part, tf.keras.Variable) else list(part.variables)
