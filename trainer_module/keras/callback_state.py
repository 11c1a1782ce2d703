"""Finds out the state of callbacks: those of their attributes that a file can hold."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf

_PLAIN = (bool, int, float, str, type(None))


def by_key(callbacks: Sequence[tf.keras.callbacks.Callback]) -> dict[str, tf.keras.callbacks.Callback]:
    """Returns callbacks by key: their class and their number among those of that class.

    The position in the list would not do: the chief may have more callbacks than
    others.
    """
    counts: collections.Counter[str] = collections.Counter()
    callbacks_by_key = {}
    for callback in callbacks:
        kind = type(callback).__name__
        callbacks_by_key[f"{kind}-{counts[kind]}"] = callback
        counts[kind] += 1
    return callbacks_by_key


def plain_attributes(callback: tf.keras.callbacks.Callback) -> Iterator[tuple[str, Any]]:
    """Yields a callback's attributes that are numbers, text, arrays or such lists."""
    # TensorBoard's writers belong to their process, and its state is in its log files.
    if isinstance(callback, tf.keras.callbacks.TensorBoard):
        return
    for name, value in vars(callback).items():
        # Keras 3 changes its sign at the end of the first epoch of each process, since
        # `monitor_op`, a function, is not known before.
        if name == "min_delta" and hasattr(callback, "_set_monitor_op"):
            continue
        if isinstance(value, list) and all(isinstance(item, _PLAIN) or _is_array(item) for item in value):
            yield name, list(value)
        elif isinstance(value, _PLAIN) or _is_array(value):
            yield name, value


def are_equal(left: Any, right: Any) -> bool:
    """Returns True if two values of an attribute are the same, arrays included."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if _is_array(left) or _is_array(right):
        return type(left) is type(right) and np.array_equal(left, right)
    return bool(left == right)


def separate_arrays(values: Mapping[str, Any], arrays: dict[str, np.ndarray], key: str) -> dict[str, Any]:
    """Moves the arrays among values into `arrays`, so that JSON can hold the rest.

    Returns the values, with `{"array": name}` in place of each array.
    """

    def separate(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [separate(item, f"{name}/{number}") for number, item in enumerate(value)]
        if not _is_array(value):
            return value
        arrays[name] = np.asarray(value)
        return {"array": name}

    return {name: separate(value, f"{key}/{name}") for name, value in values.items()}


def join_arrays(values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Puts back the arrays that `separate_arrays` took out."""

    def join(value: Any) -> Any:
        if isinstance(value, list):
            return [join(item) for item in value]
        if isinstance(value, dict):
            return arrays[value["array"]][()]  # [()] turns an array without axes into a scalar
        return value

    return {name: join(value) for name, value in values.items()}


def read_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Returns arrays of a `numpy.savez` file by name."""
    with np.load(file, allow_pickle=False) as saved:  # reading objects could run any code
        return dict(saved)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject
