"""Reads the weights of files of Keras: `.keras`, `.weights.h5` and HDF5 of a model."""

import contextlib
import importlib
import json
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras.keras_models import is_keras_3
from tfx_distribute.trainer_module.state.base_model import names
from tfx_distribute.trainer_module.state.base_model.names import Names
from tfx_distribute.trainer_module.state.base_model.sources import SourceWeight

_WEIGHTS_FILE, _CONFIG_FILE = "model.weights.h5", "config.json"  # in a `.keras` file
_LAYERS, _VARIABLES = "layers", "vars"
_NOT_WEIGHTS = ("optimizer", "metrics", "_loss_tracker", "seed_generator", "_random_generator")


class KerasFileSource:
    """The weights of a Keras file.

    Args:
      path: Path or address of the file.

    Attributes:
      weights: Its weights.

    Raises:
      ConfigurationError: The file cannot be read.
    """

    def __init__(self, path: str):
        self._open_files = contextlib.ExitStack()
        try:
            self._file, config = self._open(path)
            legacy = self._file.get("model_weights", self._file)
            self.weights = (
                list(_list_by_names(legacy)) if "layer_names" in legacy.attrs else list(_list_by_classes(self._file, config))
            )
        except (OSError, zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
            raise ConfigurationError(f"base_model: {path} is not a Keras file ({error}); write another model") from error

    def read(self, weight: SourceWeight) -> np.ndarray:
        """Reads the value of a weight."""
        return np.asarray(self._file[weight.key])

    def find_by_structure(self, model: Any) -> Mapping[int, str]:
        """Finds nothing: these files have no objects besides the layers."""
        return {}

    def close(self) -> None:
        """Closes the file."""
        self._open_files.close()

    def _open(self, path: str) -> tuple[Any, Mapping[str, Any]]:
        """Opens the HDF5 file.

        Returns:
          The file, and the configuration of the model, empty if it is not known.
        """
        h5py = importlib.import_module("h5py")  # a package that Keras needs

        if "://" in path:
            folder = self._open_files.enter_context(tempfile.TemporaryDirectory(prefix="tfx-distribute-"))
            local = f"{folder}/{path.rpartition('/')[2]}"
            tf.io.gfile.copy(path, local)
            path = local
        if not zipfile.is_zipfile(path):
            return self._open_files.enter_context(h5py.File(path, "r")), {}
        archive = self._open_files.enter_context(zipfile.ZipFile(path))
        stream = self._open_files.enter_context(archive.open(_WEIGHTS_FILE))
        return self._open_files.enter_context(h5py.File(stream, "r")), json.loads(archive.read(_CONFIG_FILE))


def _list_by_names(group: Any) -> Iterator[SourceWeight]:
    """Lists the weights of an HDF5 file of a whole model, which has their names."""
    for layer in map(_text, group.attrs["layer_names"]):
        for name in map(_text, group[layer].attrs["weight_names"]):
            value = group[layer][name]
            path = name.partition(":")[0]
            if not names.is_random_state(path):
                yield SourceWeight(Names(path=path, layer=f"{layer}:{path}", variable=path), value.name, tuple(value.shape))


def _list_by_classes(file: Any, config: Mapping[str, Any]) -> Iterator[SourceWeight]:
    """Lists the weights of a file whose keys are classes of layers and numbers."""
    found: list[tuple[str, Any]] = []
    file.visititems(lambda key, value: found.append((key, value)) if hasattr(value, "shape") else None)
    layer_names = _names_in_config(config.get("config", {}))
    for key, value in found:
        parts = key.split("/")
        if not any(part in _NOT_WEIGHTS for part in parts) and parts[-1] not in names.TABLE_VARIABLES:
            named = _name_parts(parts, file, layer_names)
            yield SourceWeight(Names(path=named or key, named_key=named, file_key=key), key, tuple(value.shape))


def _name_parts(parts: list[str], file: Any, layer_names: Mapping[str, str]) -> str | None:
    """Returns a key with the names of layers in place of their classes.

    A file of weights of Keras 2, or of an early Keras 3, has no names. The numbers of
    its classes count from the model's inputs, and those in names from the layer that
    was made first: `dense` may be another layer in both.

    Returns:
      The key; None if the file lacks the name of one of the layers.
    """
    named: list[str] = []
    for depth, part in enumerate(parts):
        if depth and parts[depth - 1] == _LAYERS:
            prefix = "/".join(parts[: depth + 1])
            group = file.get(f"{prefix}/{_VARIABLES}")
            name = layer_names.get(prefix) if group is None or "name" not in group.attrs else _text(group.attrs["name"])
            if name is None:
                return None
            named.append(name)
        elif part != _LAYERS:
            named.append(part)
    return "/".join(named)


def _names_in_config(config: Any, prefix: str = "") -> dict[str, str]:
    """Returns the name of each layer in a model's configuration by its key."""
    layers = config.get(_LAYERS, ()) if isinstance(config, dict) else ()
    layer_names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for layer in layers if isinstance(layers, list) else ():
        base = names.to_snake_case(layer["class_name"])
        number = counts[base] = counts.get(base, -1) + 1
        key = f"{prefix}{_LAYERS}/{base}_{number}" if number else f"{prefix}{_LAYERS}/{base}"
        layer_names[key] = layer.get("config", {}).get("name", base)
        layer_names |= _names_in_config(layer.get("config"), f"{key}/")
    return layer_names


def list_target_keys(model: tf.keras.Model) -> dict[int, list[tuple[str, str]]]:
    """Returns the keys that the weights of a model have in a Keras file.

    Args:
      model: A built model.

    Returns:
      `id` of each variable -> its key with the names of layers, and that with their
      classes. Several, if several layers have it: Keras saves it with each of them.
    """
    keys: dict[int, list[tuple[str, str]]] = {}
    _walk(model, "", "", set(), keys)
    return keys


def _walk(layer: Any, named: str, plain: str, seen: set[int], keys: dict[int, list[tuple[str, str]]]) -> None:
    """Walks through layers in the order in which Keras saves them."""
    if id(layer) in seen:
        return
    seen.add(id(layer))
    number = -1
    for variable in _own_variables(layer):
        number += not names.split_part(names.path_of(variable))[1]  # the parts of a weight are one
        keys.setdefault(id(variable), []).append((f"{named}{_VARIABLES}/{number}", f"{plain}{_VARIABLES}/{number}"))
    for attribute, child in _children(layer):
        if _is_layer(child):
            _walk(child, f"{named}{attribute}/", f"{plain}{attribute}/", seen, keys)
        elif isinstance(child, list | tuple | dict | set):
            counts: dict[str, int] = {}
            for item in child.values() if isinstance(child, dict) else child:
                # Keras 3 counts those that it has saved before, Keras 2 does not.
                if not _is_layer(item) or (id(item) in seen and not is_keras_3()):
                    continue
                base = names.to_snake_case(type(item).__name__)
                count = counts[base] = counts.get(base, -1) + 1
                key = f"{base}_{count}" if count else base
                child_named = item.name if attribute == _LAYERS else f"{attribute}/{key}"
                _walk(item, f"{named}{child_named}/", f"{plain}{attribute}/{key}/", seen, keys)


def _own_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer saves under numbers."""
    if is_keras_3():
        return [*layer._trainable_variables, *layer._non_trainable_variables]
    if names.has_table(layer):
        return []
    return [*layer._trainable_weights, *layer._non_trainable_weights]


def _is_layer(value: Any) -> bool:
    return isinstance(value, tf.keras.layers.Layer) and not isinstance(value, tf.keras.metrics.Metric)


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    # Keras's own order decides on the keys.
    if is_keras_3():
        yield from importlib.import_module("keras.src.saving.saving_lib")._walk_saveable(layer)
    else:
        yield from importlib.import_module("tf_keras.src.saving.saving_lib")._walk_trackable(layer)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
