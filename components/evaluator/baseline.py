"""Tells whether a baseline can read the examples, before the evaluation fails on it.

The latest blessed model may expect features that the data no longer has, or has as
another type. TFMA then fails, and no later model could ever replace the baseline.
"""

import re
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.utils import model_util

from tfx_distribute.trainer_module.errors import first_line

# Signatures that TFMA calls if a model has them, and the evaluation names no others.
_DEFAULT_PREPROCESSING = ("transformed_features", "transformed_labels")


def find_problem(folder: str, spec: config_pb2.ModelSpec, examples: list[bytes], new_folder: str) -> str:
    """Calls a baseline's signatures on examples, as TFMA will.

    A signature that takes parsed features is not called, since TFMA parses them, nor
    those of a model that is not a SavedModel.
    `spec` is the baseline in the configuration of the evaluation.

    Returns why the baseline cannot be compared with; empty if it can. Raises if it
    cannot be loaded: its storage may not answer for a moment, and without a baseline, a
    worse model could be blessed.
    """
    if not tf.saved_model.contains_saved_model(folder):
        return ""
    model = tf.saved_model.load(folder)
    for name in filter(None, (*spec.preprocessing_function_names, spec.signature_name)):
        if "@" not in name and name not in model.signatures and not hasattr(model, name):
            return f"{folder} has no signature {name!r}"
    preprocessing = spec.preprocessing_function_names or [
        name for name in _DEFAULT_PREPROCESSING if name in model.signatures
    ]
    is_default = preprocessing and not spec.preprocessing_function_names
    if is_default and not set(preprocessing) & set(read_signatures(new_folder)):
        # TFMA would take the results of the only such signature for both models.
        return f"{folder} has labels that its decode_features makes, and the new model has not"
    serving = spec.signature_name or model_util.get_default_signature_name_from_model(model)
    for name in (*preprocessing, serving):
        try:
            if name in model.signatures:
                _call(model.signatures[name], examples)
        except Exception as error:  # TFMA would fail with the same error
            return f"{folder} cannot read these examples: {_reason(error)}"
    return ""


def _call(signature: Any, examples: list[bytes]) -> None:
    """Calls a signature if it takes serialized tf.Examples."""
    arguments = signature.structured_input_signature[1]
    names = [name for name, spec in arguments.items() if spec.dtype == tf.string and spec.shape.rank == 1]
    features = tf.train.Example.FromString(examples[0]).features.feature
    if len(arguments) == 1 and names and names[0] not in features:
        signature(**{names[0]: tf.constant(examples)})


def read_signatures(folder: str) -> dict[str, Any]:
    """Returns the `SignatureDef`s of a SavedModel by name, without loading it."""
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        return dict(saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].signature_def)


def _reason(error: Exception) -> str:
    """Returns the line of an error that names a feature, or else its first line.

    TensorFlow writes about nodes of the graph before it names the feature.
    """
    lines = map(str.strip, str(error).splitlines())
    line = next((line for line in lines if re.search(r"\b(Feature|Key):", line)), first_line(error))
    return line.removeprefix("Name: <unknown>, ").removesuffix(".")
