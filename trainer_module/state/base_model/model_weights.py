"""Lists the weights of a model that training has built, reads and assigns them.

A weight may be copied to all replicas, divided among parameter servers, or laid out
over a mesh.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.keras.keras_models import is_keras_3


@dataclass(eq=False)
class ModelWeight:
    """One weight of the model, such as a kernel.

    Attributes:
      path: Path of its layer and its own name, such as `encoder/dense/kernel`.
      variable_name: Name of its TensorFlow variable, which may lack outer layers.
      parts: Its variables: one, unless it is divided along the first dimension.
    """

    path: str
    variable_name: str
    shape: tuple[int, ...]
    parts: list[Any]

    def assign(self, value: np.ndarray) -> None:
        """Gives the weight a value.

        Call this in the strategy's scope, in each process that has the variable.
        """
        start = 0
        for variable in self.parts:
            part = value[start : start + variable.shape[0]] if len(self.parts) > 1 else value
            part = np.asarray(part).astype(tf.as_dtype(variable.dtype).name)
            variable.assign(part)  # over a mesh, `mesh_strategy` divides it
            start += len(part) if part.shape else 0

    def read(self) -> np.ndarray:
        """Returns the whole value."""
        values = [_read(variable) for variable in self.parts]
        return values[0] if len(values) == 1 else np.concatenate(values)


def list_weights(model: tf.keras.Model) -> list[ModelWeight]:
    """Lists the weights of a built model, also those that are not trained.

    Leaves out the state of metrics and random generators, and what lookup and
    discretization layers compute from data: that stays as `build_model` made it.
    """
    layers = list(iterate_layers(model))
    # Layers come before those that they contain, so that the innermost one counts.
    layer_paths = {id(variable): f"{path}/" for path, layer in layers for variable in layer.weights}
    adapted = [layer.weights for _, layer in layers if _is_adapted(layer)]
    metrics = [metric.variables for metric in getattr(model, "metrics", ())]
    left_out = {id(variable) for variables in (*adapted, *metrics) for variable in variables}
    weights: list[ModelWeight] = []
    for variable in model.weights:
        inner = variable._value if is_keras_3() else variable
        if id(variable) in left_out or is_random_state(inner.name):
            continue
        name, part = _split_part(inner)
        if part:  # it follows the others
            first, *others = weights[-1].shape
            weights[-1].shape = (first + variable.shape[0], *others)
            weights[-1].parts.append(variable)
        else:
            own_name = variable.name if is_keras_3() else name.rpartition("/")[2]
            path = layer_paths.get(id(variable), "") + own_name
            weights.append(ModelWeight(path, name, tuple(variable.shape), [variable]))
    return weights


def iterate_layers(model: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yields the layers of a model with their paths, those that contain others first.

    Of a layer, yields those in it, whose paths begin with `prefix`, unless `seen`.
    """
    seen = set() if seen is None else seen
    for layer in model._flatten_layers(include_self=False, recursive=False):
        if id(layer) in seen or isinstance(layer, tf.keras.metrics.Metric) or not hasattr(layer, "_flatten_layers"):
            continue
        seen.add(id(layer))
        path = f"{prefix}{layer.name}"
        yield path, layer
        yield from iterate_layers(layer, f"{path}/", seen)


def automatic_names(model: tf.keras.Model) -> set[str]:
    """Returns the names that Keras would give a model's layers, without numbers."""
    names = {_to_snake_case(type(layer).__name__) for layer in (model, *(layer for _, layer in iterate_layers(model)))}
    # A Bidirectional layer has a copy of its layer for each direction.
    return names | {f"{direction}_{name}" for direction in ("forward", "backward") for name in names}


def is_random_state(name: str) -> bool:
    """Returns True for the state of a random generator, by its name."""
    return name.partition(":")[0].rpartition("/")[2] in ("seed_generator_state", "StateVar")


def _is_adapted(layer: Any) -> bool:
    layers = tf.keras.layers
    return isinstance(layer, layers.StringLookup | layers.IntegerLookup | layers.TextVectorization | layers.Discretization)


def _split_part(variable: Any) -> tuple[str, int]:
    """Returns the name of a variable's weight, and which part of it the variable is."""
    name = variable.name.partition(":")[0]
    # TensorFlow names the parts that parameter servers have.
    match = re.fullmatch(r"(.*)/part_(\d+)", name) if hasattr(variable, "_sharded_container") else None
    return (match[1], int(match[2])) if match else (name, 0)


def _to_snake_case(class_name: str) -> str:
    """Returns a class's name as Keras writes it in names of layers."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", class_name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _read(variable: Any) -> np.ndarray:
    if getattr(variable, "layout", None) is not None:
        return np.asarray(variable.numpy())  # of all parts: see `mesh_strategy`
    return np.asarray(tf.convert_to_tensor(variable.value if is_keras_3() else variable.read_value()).numpy())
