"""Reads the weights of base models' files, and names those of an exported model."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.state.base_model import location, model_weights
from tfx_distribute.trainer_module.state.base_model.matching import BaseWeight

# Attribute of an exported model, with its weights by number and path. A SavedModel has
# names of TensorFlow's variables only: Keras 2 leaves out outer layers, Keras 3 those
# in lists, and variables that are divided among parameter servers have none.
_WITH_PATHS = "weights_by_path"
_LISTED = "variables"  # weights in the order of the model, of Keras's `save` and `export`
_ADAPTED = ("summary", "Variable")  # state of discretization and TF-IDF layers there


def name_weights(model: tf.keras.Model) -> None:
    """Names the weights of a model in the SavedModel that is about to be written."""
    named = tf.__internal__.tracking.AutoTrackable()  # in which Keras looks for no weights
    weights = enumerate(model_weights.list_weights(model))
    named.weights = {f"{number}/{weight.path}": _whole(weight.parts[0]) for number, weight in weights}
    setattr(model, _WITH_PATHS, named)


def _whole(variable: Any) -> Any:
    """Returns the variable of which one is a part, if parameter servers have parts."""
    container = getattr(variable, "_sharded_container", None)
    return container() if container else variable


def read(path: str, model: tf.keras.Model) -> tuple[list[BaseWeight], bool]:
    """Reads the weights of a Keras file or a SavedModel, which `location.find` found.

    Also returns True if their names are paths, False if they are those of variables.
    """
    return (_read_keras_file(path, model), True) if location.is_keras_file(path) else read_saved_model(path)


def _read_keras_file(path: str, model: tf.keras.Model) -> list[BaseWeight]:
    """Reads the weights of a Keras file.

    A `.keras` file may need the classes of the model. A `.weights.h5` file has weights
    alone, and is loaded into a copy of the model.
    """
    every = {type(layer) for _, layer in model_weights.iterate_layers(model)}
    classes = {each.__name__: each for each in every if each.__module__.partition(".")[0] not in ("keras", "tf_keras")}

    def load(local: str) -> tf.keras.Model:
        with tf.device("CPU:0"):
            if not local.endswith(".weights.h5"):
                return tf.keras.models.load_model(local, custom_objects=classes, compile=False)
            copy = tf.keras.models.clone_model(model)
            copy.load_weights(local)
            return copy

    try:
        # In a thread of its own, which is not in the scope of the strategy.
        with tempfile.TemporaryDirectory(prefix="tfx-distribute-") as folder, ThreadPoolExecutor(1) as thread:
            local = f"{folder}/{path.rpartition('/')[2]}"
            tf.io.gfile.copy(path, local)
            base = thread.submit(load, local).result()
    except Exception as error:  # Keras raises what the code of a layer raises
        raise ConfigurationError(
            f"base_model: Keras cannot load {path}: {first_line(error)}; write another model, such as a SavedModel"
        ) from error
    return [BaseWeight(weight.path, weight.shape, weight.read) for weight in model_weights.list_weights(base)]


def read_saved_model(folder: str) -> tuple[list[BaseWeight], bool]:
    """Reads the names and shapes of a SavedModel's weights; see `read`."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        reader = tf.train.load_checkpoint(f"{folder}/variables/variables")
        graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    except (tf.errors.OpError, ValueError) as error:
        raise ConfigurationError(
            f"base_model: {folder} cannot be read ({first_line(error)}); write another model"
        ) from error
    children = [{child.local_name: child.node_id for child in node.children} for node in graph.nodes]
    has_paths = _WITH_PATHS in children[0]
    listed = children[children[0][_WITH_PATHS]]["weights"] if has_paths else children[0].get(_LISTED)
    entries = [(*key.partition("/"), node) for key, node in children[listed].items()] if listed else []
    shapes = reader.get_variable_to_shape_map()
    weights = []
    for _, _, path, node in sorted(entries, key=lambda entry: int(entry[0])):
        for value in graph.nodes[node].attributes:
            name, key = path or value.full_name, value.checkpoint_key
            is_state = model_weights.is_random_state(name) or (not has_paths and name.rpartition("/")[2] in _ADAPTED)
            if value.name == "VARIABLE_VALUE" and not is_state:
                weights.append(BaseWeight(name, tuple(shapes[key]), partial(reader.get_tensor, key)))
    if not weights:
        raise ConfigurationError(
            f"base_model: {folder} does not list the weights of a Keras model; save it with model.export(...) or "
            'model.save("x.keras")'
        )
    return weights, has_paths
