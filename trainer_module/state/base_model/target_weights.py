"""Lists the weights of a model that training has built, and assigns them.

A weight may be copied to all replicas, divided among parameter servers, or laid out
over a mesh.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from tfx_distribute.trainer_module.keras.keras_models import is_keras_3
from tfx_distribute.trainer_module.state.base_model import keras_files, names
from tfx_distribute.trainer_module.state.base_model.names import Names


@dataclass(eq=False)
class TargetWeight:
    """One weight of the model, such as a kernel.

    Attributes:
      names: The weight's names.
      shape: Shape of the whole weight.
      dtype: NumPy's name of its type.
      parts: Its variables: one, unless it is divided among parameter servers, along the
        first dimension.
      copies: Keys of a Keras file that has the weight more than once.
      is_adapted: True for the state of a lookup or discretization layer, which stays as
        `build_model` made it.
    """

    names: Names
    shape: tuple[int, ...]
    dtype: str
    parts: list[Any]
    copies: tuple[str, ...] = ()
    is_adapted: bool = False

    @property
    def path(self) -> str:
        """Path of the weight, such as `encoder/dense/kernel`."""
        return self.names.path

    def assign(self, value: np.ndarray, strategy: Any) -> None:
        """Gives the weight a value, on all replicas and parameter servers.

        Call this in the strategy's scope, in every process that has the variable.

        Args:
          value: The whole value.
          strategy: The strategy.
        """
        value = np.asarray(value).astype(self.dtype)
        start = 0
        for variable in self.parts:
            layout = getattr(variable, "layout", None)
            if layout is not None:
                variable.assign(strategy.shard_value(value, layout))
            elif len(self.parts) == 1:
                variable.assign(value)
            else:
                end = start + variable.shape[0]
                variable.assign(value[start:end])
                start = end

    def read(self) -> np.ndarray:
        """Returns the whole value."""
        values = [_read(variable) for variable in self.parts]
        return values[0] if len(values) == 1 else np.concatenate(values)


def list_weights(model: tf.keras.Model, with_file_keys: bool = False) -> list[TargetWeight]:
    """Lists the weights of a model, also those that are not trained.

    The state of metrics is left out.

    Args:
      model: A built model.
      with_file_keys: True to find the keys that files of Keras have for them.
    """
    metrics = {id(variable) for metric in getattr(model, "metrics", ()) for variable in metric.variables}
    file_keys = keras_files.list_target_keys(model) if with_file_keys else {}
    layer_of = _find_top_layers(model)
    adapted = {id(variable) for _, layer in iterate_layers(model) if names.is_adapted(layer) for variable in layer.weights}
    weights: list[TargetWeight] = []
    for variable in names.weights_of(model):
        if id(variable) in metrics:
            continue
        path, part = names.split_part(names.path_of(variable))
        if part:  # it follows the others
            weights[-1].parts.append(variable)
            first = weights[-1].shape
            weights[-1].shape = (first[0] + variable.shape[0], *first[1:])
            continue
        layer = layer_of.get(id(variable))
        keys = file_keys.get(id(variable), [])
        named_key, file_key = keys[0] if keys else (None, None)
        weight_names = Names(
            path=path,
            layer=f"{layer}:{path}" if layer else None,
            variable=names.split_part(names.variable_name(variable))[0],
            named_key=named_key,
            file_key=file_key,
        )
        weights.append(
            TargetWeight(
                weight_names,
                tuple(variable.shape),
                tf.as_dtype(variable.dtype).name,
                [variable],
                copies=tuple(key for _, key in keys[1:]),
                is_adapted=id(variable) in adapted,
            )
        )
    return weights


def iterate_layers(model: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yields the layers of a model with their paths, those that contain others first.

    Args:
      model: A model or a layer.
      prefix: Path of the layer, ending in `/`.
      seen: Layers that have been yielded.
    """
    seen = set() if seen is None else seen
    for layer in model._flatten_layers(include_self=False, recursive=False):
        if id(layer) in seen or isinstance(layer, tf.keras.metrics.Metric) or not hasattr(layer, "_flatten_layers"):
            continue
        seen.add(id(layer))
        path = f"{prefix}{layer.name}"
        yield path, layer
        yield from iterate_layers(layer, f"{path}/", seen)


def _find_top_layers(model: tf.keras.Model) -> dict[int, str]:
    """Returns the name of the outermost layer that each variable belongs to."""
    layers = [layer for layer in model.layers if not isinstance(layer, tf.keras.metrics.Metric)]
    return {id(variable): layer.name for layer in reversed(layers) for variable in layer.weights}


def _read(variable: Any) -> np.ndarray:
    layout = getattr(variable, "layout", None)
    if layout is not None:
        replicated = dtensor.Layout.replicated(layout.mesh, layout.rank)
        return np.asarray(dtensor.unpack(dtensor.relayout(variable.read_value(), replicated))[0].numpy())
    return np.asarray(tf.convert_to_tensor(variable.value if is_keras_3() else variable.read_value()).numpy())
