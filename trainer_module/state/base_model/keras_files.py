"""Reads Keras files: `.keras` and `.weights.h5`."""

import tempfile
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.state.base_model import model_weights
from tfx_distribute.trainer_module.state.base_model.matching import BaseWeight

WEIGHTS_SUFFIX = ".weights.h5"


def read(path: str, model: tf.keras.Model) -> list[BaseWeight]:
    """Reads the weights of a Keras file.

    A `.keras` file may need the classes of the model. A `.weights.h5` file has weights
    alone, and is loaded into a copy of the model.
    """
    every = {type(layer) for _, layer in model_weights.iterate_layers(model)}
    classes = {each.__name__: each for each in every if each.__module__.partition(".")[0] not in ("keras", "tf_keras")}

    def load(local: str) -> tf.keras.Model:
        with tf.device("CPU:0"):
            if not local.endswith(WEIGHTS_SUFFIX):
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
