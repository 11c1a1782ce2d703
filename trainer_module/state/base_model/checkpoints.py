"""Reads the weights of TensorFlow checkpoints, alone and in SavedModels."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.keras import saved_objects
from tfx_distribute.trainer_module.state.base_model import names
from tfx_distribute.trainer_module.state.base_model.names import Names
from tfx_distribute.trainer_module.state.base_model.sources import SourceWeight

# File next to a SavedModel's assets: key in the checkpoint -> path of the weight.
# Checkpoints have the names of TensorFlow's variables only. Keras 3 leaves out layers
# in layers, and variables that are divided among parameter servers have none.
PATHS_FILE = "assets.extra/weights.json"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
# Lists of all weights: of `model.export()`, and in a training's state of Keras 3.
_EXPORTED, _COPIES, _STATE = "variables", "_all_variables", "weights"
_TABLE = "lookup_table"  # of a layer of Keras
# Names that TensorFlow gives every variable which is divided among parameter servers.
_NAMELESS = ("", "ShardedVariable")
# Parts of a model, of a training's state or of our SavedModels that are not weights.
_NOT_WEIGHTS = frozenset(
    ["optimizer", "_optimizer", "metrics", "_metrics", "compiled_metrics", "compiled_loss", "_compile_metrics"]
).union(["_compile_loss", "_loss_tracker", "keras_api", "transform_layer", "signatures", "save_counter", "random"])


def write_paths(model: tf.keras.Model, folder: str) -> None:
    """Writes the paths of a SavedModel's weights next to it, for later warm starts.

    Args:
      model: The model that was saved.
      folder: Folder of the SavedModel.
    """
    if not names.weights_of(model):
        return
    paths = CheckpointSource(f"{folder}/variables/variables").paths_of(model)
    tf.io.gfile.makedirs(f"{folder}/{PATHS_FILE.rpartition('/')[0]}")
    atomic_files.write(f"{folder}/{PATHS_FILE}", json.dumps(paths, indent=1))


class CheckpointSource:
    """The weights of a checkpoint.

    Args:
      prefix: Path of the checkpoint without the suffixes of its files.
      saved_model: Folder of the SavedModel that it is part of; None if there is none.

    Attributes:
      weights: Its weights.

    Raises:
      ConfigurationError: The checkpoint cannot be read, or holds no model.
    """

    def __init__(self, prefix: str, saved_model: str | None = None):
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self._shapes = self._reader.get_variable_to_shape_map()
        except (tf.errors.OpError, ValueError) as error:
            raise ConfigurationError(
                f"base_model: {prefix} cannot be read ({first_line(error)}); write another model"
            ) from error
        self._nodes: Any = []
        self._root = 0
        self._list: int | None = None  # node of the list of all weights, if there is one
        if _GRAPH in self._shapes:
            graph = trackable_object_graph_pb2.TrackableObjectGraph()
            graph.ParseFromString(self._reader.get_tensor(_GRAPH))
            self._nodes = graph.nodes
            children = self._children(0)
            # The root of a training's state, and not of a model.
            is_state = "model" in children and children.keys() <= {"model", "task", _STATE, *_NOT_WEIGHTS}
            if is_state:
                self._root = children["model"]
            # Keras 3 saves each weight twice there, in the list and elsewhere.
            lists = [_STATE] if is_state else [_EXPORTED, _COPIES] if _COPIES in children else []
            self._list = next(
                (children[name] for name in lists if name in children and self._children(children[name])), None
            )
        text = atomic_files.read(f"{saved_model}/{PATHS_FILE}") if saved_model else None
        self._paths: dict[str, str] = json.loads(text) if text else {}
        self.weights = self._list_weights() if self._nodes else self._list_named()
        if not self.weights:
            raise ConfigurationError(f"base_model: {prefix} has no weights; write another model")

    def read(self, weight: SourceWeight) -> np.ndarray:
        """Reads the value of a weight."""
        return np.asarray(self._reader.get_tensor(weight.key))

    def find_by_structure(self, model: Any) -> Mapping[int, str]:
        """See `Source`."""
        if self._list is not None:
            return self._find_in_list(model)
        return {id(variable): key for trackable, key in self._walk(model) for variable in saved_objects.parts_of(trackable)}

    def paths_of(self, model: Any) -> dict[str, str]:
        """Returns the path of each weight, for the file `PATHS_FILE`.

        Args:
          model: The model that the checkpoint is of.

        Returns:
          Key in the checkpoint -> path.
        """
        paths = {id(_inner(weight)): names.path_of(weight) for weight in names.weights_of(model)}
        found: dict[str, str] = {}
        for trackable, key in self._walk(model):
            variables = saved_objects.parts_of(trackable)
            path = paths.get(id(variables[0]))
            if path is not None:
                found[key] = path.removesuffix("/part_0") if variables[0] is not trackable else path
        return found

    def close(self) -> None:
        """Does nothing: the reader has no files open."""

    def _find_in_list(self, model: Any) -> dict[int, str]:
        """Finds weights by their numbers, if all shapes are those of the model."""
        assert self._list is not None
        values = [
            value
            for _, node in sorted(self._children(self._list).items(), key=lambda item: int(item[0]))
            for value in self._nodes[node].attributes
            if value.name == _VALUE and not names.is_random_state(value.full_name)
        ]
        weights = [weight for weight in names.weights_of(model) if not names.is_random_state(names.path_of(weight))]
        if len(values) != len(weights) or not all(
            weight.shape.is_compatible_with(self._shapes[value.checkpoint_key])
            for weight, value in zip(map(_inner, weights), values, strict=True)
        ):
            return {}
        return {id(_inner(weight)): value.checkpoint_key for weight, value in zip(weights, values, strict=True)}

    def _list_weights(self) -> list[SourceWeight]:
        root = self._root if self._list is None else self._list
        weights, seen, pending = [], {root, *self._find_table_variables()}, [root]
        while pending:
            node = pending.pop(0)
            for attribute in self._nodes[node].attributes:
                key, name = attribute.checkpoint_key, attribute.full_name
                if attribute.name != _VALUE or key not in self._shapes or names.is_random_state(name):
                    continue
                named = None if name in _NAMELESS else name
                path = self._paths.get(key) or named or key.removesuffix(f"/.ATTRIBUTES/{_VALUE}")
                weight_names = Names(path=path, variable=named)
                weights.append(SourceWeight(weight_names, key, tuple(self._shapes[key])))
            for name, child in self._children(node).items():
                if child not in seen and name not in _NOT_WEIGHTS:
                    seen.add(child)
                    pending.append(child)
        return weights

    def _find_table_variables(self) -> set[int]:
        """Returns the nodes of variables that belong to lookup tables."""
        tables = [children for node in range(len(self._nodes)) if _TABLE in (children := self._children(node))]
        return {children[name] for children in tables for name in names.TABLE_VARIABLES if name in children}

    def _list_named(self) -> list[SourceWeight]:
        """Lists the variables of a checkpoint of TensorFlow 1, whose keys are names."""
        return [SourceWeight(Names(path=key, variable=key), key, tuple(shape)) for key, shape in self._shapes.items()]

    def _walk(self, model: Any) -> list[tuple[Any, str]]:
        """Walks through a model and the checkpoint's objects at the same time.

        Returns:
          Pairs of a variable of TensorFlow, which may be divided, and a key.
        """
        if not self._nodes:
            return []
        pairs = []
        # Keeps the objects: some are made on the way, and their ids could come again.
        seen, pending = {id(model): model}, [(model, self._root)]
        while pending:
            trackable, node = pending.pop(0)
            keys = [value.checkpoint_key for value in self._nodes[node].attributes if value.name == _VALUE]
            if keys:
                pairs.append((trackable, keys[0]))
            nodes = self._children(node)
            for name, child in _children_of(trackable).items():
                child = _inner(child)
                if id(child) not in seen and name in nodes and name not in _NOT_WEIGHTS:
                    seen[id(child)] = child
                    pending.append((child, nodes[name]))
        return pairs

    def _children(self, node: int) -> dict[str, int]:
        return {child.local_name: child.node_id for child in self._nodes[node].children}


def _inner(value: Any) -> Any:
    """Returns the TensorFlow variable of a Keras 3 variable, or the value itself."""
    return getattr(value, "_value", value)


def _children_of(value: Any) -> dict[str, Any]:
    """Returns the parts of an object of a model, named as in a checkpoint."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, list | tuple):
        return {str(number): item for number, item in enumerate(value)}
    if not hasattr(value, "_trackable_children"):
        return {}
    children = dict(tf.train.TrackableView.children(value))
    for name in getattr(value, "_tracked", ()):  # lists and dictionaries of a Keras 3 layer, only in SavedModels
        children[name] = getattr(value, name)
    return children
