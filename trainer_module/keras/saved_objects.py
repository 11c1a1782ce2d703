"""Finds the objects that TensorFlow saves, and names those that it cannot save."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.keras import keras_models


def find(saved: Mapping[str, Any], exported: bool = False) -> list[Any]:
    """Returns the objects that `tf.train.Checkpoint(**saved)` saves, each once.

    With `exported`, objects that only an export saves are returned as well. Raises
    ConfigurationError if TensorFlow cannot save some object, which the message names.
    """
    root = tf.train.Checkpoint(**saved)
    found: dict[int, Any] = {id(root): root}
    pending: list[tuple[Any, str]] = [(root, "")]
    while pending:
        trackable, path = pending.pop(0)
        try:
            children = dict(tf.train.TrackableView.children(trackable))
        except ValueError as error:
            raise ConfigurationError(f"module: TensorFlow cannot save {path}: {first_line(error)}") from error
        if exported:
            children |= _exported_children(trackable)
        for name, child in children.items():
            if id(child) not in found:
                found[id(child)] = child
                pending.append((child, f"{path}.{name}" if path else name))
    return list(found.values())


def _exported_children(trackable: Any) -> dict[str, Any]:
    """Returns the containers of a Keras 3 layer, which only an export saves."""
    names = vars(trackable).get("_tracked", ()) if keras_models.is_keras_3() and hasattr(trackable, "__dict__") else ()
    values = {name: getattr(trackable, name, None) for name in names}
    return {
        name: tf.__internal__.tracking.wrap(dict(value) if isinstance(value, Mapping) else list(value))
        for name, value in values.items()
        if isinstance(value, Mapping | list | set)
    }
