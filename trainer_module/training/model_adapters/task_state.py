"""Finds what a task keeps besides its model, optimizer and metrics.

Examples are a teacher network that follows the model, a moving average in a variable,
and a generator of random numbers. A task need not be a `tf.Module`, so TensorFlow does
not find them itself.
"""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.training import keras_models


def find(task: Any, elsewhere: Collection[Any]) -> dict[str, Any]:
    """Returns the parts of a task that have variables, or may have some.

    ```python
    parts = task_state.find(task, elsewhere=[task.model, task.optimizer])
    parts["teacher"], parts["centers/0"]
    ```

    Args:
      task: Its attributes may be variables, Keras objects, generators, and other
        objects that TensorFlow can save, or lists and dictionaries of these.
      elsewhere: Parts to leave out.

    Returns:
      Path of attribute, keys and indices -> part, the same in every process.
    """
    left_out = {id(part) for part in elsewhere}
    parts: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if id(value) in left_out:
            return
        if isinstance(value, Mapping | list | tuple):
            left_out.add(id(value))  # it may contain itself
        if isinstance(value, Mapping):
            for key, item in value.items():
                add(f"{path}/{key}", item)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                add(f"{path}/{index}", item)
        elif _is_part(value):
            parts[path] = value

    for name, value in getattr(task, "__dict__", {}).items():
        if not name.startswith("_self_"):  # what TensorFlow adds to a tf.Module
            add(name, value)
    return dict(sorted(parts.items()))


def state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parts as `tf.train.Checkpoint` can save them.

    In Keras 3, it does not see all variables of an object, see `keras_models.state`.

    Args:
      parts: See `find`.
    """
    saved: dict[str, Any] = {}
    for path, part in parts.items():
        if isinstance(part, tf.__internal__.tracking.Trackable):
            saved[path] = part
        if isinstance(part, _keras_3_kinds()):
            saved |= {f"{path}/variables/{index}": each.value for index, each in enumerate(_keras_3_variables(part))}
    return saved


def are_built(parts: Mapping[str, Any]) -> bool:
    """Returns False if a part creates variables in the first step only."""
    return all(map(_is_built, parts.values()))


def _is_built(part: Any) -> bool:
    if hasattr(part, "apply_gradients"):
        return bool(getattr(part, "built", getattr(part, "_built", False)))  # of Keras 3, of Keras 2
    layers = part._flatten_layers() if hasattr(part, "_flatten_layers") else [part]
    return all(getattr(layer, "built", True) for layer in layers)


def _is_part(value: Any) -> bool:
    # A new process reads from the beginning; TensorFlow cannot save every iterator.
    reads = isinstance(value, tf.data.Dataset | tf.data.Iterator | tf.distribute.DistributedIterator)
    return not reads and isinstance(value, (tf.__internal__.tracking.Trackable, *_keras_3_kinds()))


def _keras_3_variables(part: Any) -> list[Any]:
    if isinstance(part, tf.keras.random.SeedGenerator):
        return [part.state]
    return [part] if isinstance(part, tf.keras.Variable) else list(part.variables)


def _keras_3_kinds() -> tuple[type, ...]:
    """Returns the classes of Keras 3 that have variables; none with Keras 2."""
    if not keras_models.is_keras_3():
        return ()
    keras = tf.keras
    return (
        keras.Variable,
        keras.layers.Layer,
        keras.metrics.Metric,
        keras.optimizers.Optimizer,
        keras.random.SeedGenerator,
    )
