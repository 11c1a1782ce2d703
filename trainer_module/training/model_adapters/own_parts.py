"""Finds variables that the user's objects keep and that a saved state would lack.

Examples are a teacher network that follows the model, a moving average in a variable of
a loss, and a generator of random numbers. TensorFlow does not find what a task, a loss
or a learning rate schedule keeps, nor what a Keras 3 model keeps in lists and
dictionaries.
"""

import types
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.training import attributes, keras_models, optimizers, saved_objects


def find(owners: Mapping[str, Any], elsewhere: Collection[Any]) -> dict[str, Any]:
    """Returns the parts of objects that have variables, or may have some.

    ```python
    parts = own_parts.find({"": task}, elsewhere=[task.model, task.optimizer])
    parts["teacher"], parts["centers/0"]
    ```

    Args:
      owners: Name -> object, see `attributes.walk`. Their parts may be variables, Keras
        objects, generators, and other objects that TensorFlow can save.
      elsewhere: Parts to leave out.

    Returns:
      Path -> part, each part once, the same in every process.
    """
    left_out = {id(part) for part in elsewhere}
    parts: dict[str, Any] = {}
    for path, value in attributes.walk(owners):
        if _is_part(value) and not _is_among(left_out, value):
            left_out.add(id(value))
            parts[path] = value
    return dict(sorted(parts.items()))


def find_unsaved(owners: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of objects that a saved state lacks.

    Args:
      owners: See `find`.
      saved: The rest of the state, for `tf.train.Checkpoint(**saved)`.

    Raises:
      ConfigurationError: TensorFlow cannot save the rest.
    """
    found = saved_objects.find(saved)
    # TensorFlow saves the slots of tf.keras.optimizers.legacy, but not as parts of the
    # optimizer, which keeps them under keys that differ between processes.
    legacy = [each for each in found if keras_models.is_optimizer(each) and hasattr(each, "get_slot_names")]
    slots = [variable for each in legacy for variable in each.weights]
    return find(owners, [*found, *slots])


def owners_of(model: tf.keras.Model) -> dict[str, Any]:
    """Returns the objects of a compiled model that may keep variables of the user's.

    These are what it was compiled with, its optimizer for the schedule and, in Keras 3,
    the model and its layers, see `keras_models.state`.

    Returns:
      Name -> object, for `attributes.walk`.
    """
    losses = model._compile_loss if keras_models.is_keras_3() else model.compiled_loss
    compiled = types.SimpleNamespace(
        loss=getattr(model, "loss", None), loss_weights=getattr(losses, "_user_loss_weights", None)
    )
    found = {"compiled": compiled, "optimizer": optimizers.unwrap(model.optimizer)}
    if not keras_models.is_keras_3():
        return found
    layers = model._flatten_layers(include_self=False)
    return {**found, "model": model, **{f"layer-{number}": layer for number, layer in enumerate(layers)}}


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
        if isinstance(part, keras_models.keras_3_kinds()):
            saved |= {f"{path}/variables/{index}": each.value for index, each in enumerate(_keras_3_variables(part))}
    return saved


def are_built(parts: Mapping[str, Any]) -> bool:
    """Returns False if a part creates variables in the first step only."""
    return all(map(_is_built, parts.values()))


def _is_built(part: Any) -> bool:
    if isinstance(part, tf.Variable):
        return True
    if keras_models.is_optimizer(part):
        return bool(getattr(part, "built", getattr(part, "_built", False)))  # of Keras 3, of Keras 2
    layers = part._flatten_layers() if hasattr(part, "_flatten_layers") else [part]
    return all(getattr(layer, "built", True) for layer in layers)


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
