"""Tells whether a baseline can read the examples, before the evaluation fails on it.

The latest blessed model may expect features that the data no longer has, or has as
another type. TFMA then fails, and no later model could ever replace the baseline.
"""

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_model_analysis.proto import config_pb2
from tensorflow_model_analysis.utils import model_util

from tfx_distribute.trainer_module.data.tfrecords import is_gzipped

MAX_EXAMPLES = 64  # enough to see each feature, and still quick with images
_SAVED_MODELS = ("", tfma.constants.TF_GENERIC, tfma.constants.TF_KERAS)
_CALLED_UNASKED = ("transformed_features", "transformed_labels")  # by TFMA, if the model has them


def read_examples(files: Iterable[str]) -> list[bytes]:
    """Returns the first serialized tf.Examples, at most `MAX_EXAMPLES`.

    Args:
      files: TFRecord files.
    """
    examples: list[bytes] = []
    with contextlib.suppress(tf.errors.OpError):  # a damaged file; the evaluation reads it too, and says so
        for file in files:
            records = tf.data.TFRecordDataset(file, compression_type="GZIP" if is_gzipped(file) else "")
            examples += records.take(MAX_EXAMPLES - len(examples)).as_numpy_iterator()
            if len(examples) >= MAX_EXAMPLES:
                break
    return examples


def find_problem(folder: str, spec: config_pb2.ModelSpec, examples: list[bytes], new_folder: str) -> str:
    """Calls a baseline's signatures on examples, as TFMA will.

    A signature that takes parsed features is not called, since TFMA parses them.

    Args:
      folder: Path of the SavedModel.
      spec: The baseline in the configuration of the evaluation.
      examples: Serialized tf.Examples, at least one.
      new_folder: Path of the new model's SavedModel.

    Returns:
      Why the baseline cannot be compared with, such as `/models/7 cannot read these
      examples: ...`; empty if it can.

    Raises:
      Exception: It cannot be loaded. Its storage may not answer for a moment; without a
        baseline, a worse model could be blessed.
    """
    if spec.model_type not in _SAVED_MODELS:
        return ""
    if not tf.saved_model.contains_saved_model(folder):
        return f"{folder} is not there any more"
    model = tf.saved_model.load(folder)
    required = [*spec.preprocessing_function_names, *([spec.signature_name] if spec.signature_name else [])]
    for name in required:
        if "@" not in name and name not in model.signatures and not hasattr(model, name):
            return f"{folder} has no signature {name!r}"
    unasked = [] if spec.preprocessing_function_names else [name for name in _CALLED_UNASKED if name in model.signatures]
    if unasked and not set(unasked) & _read_signature_names(new_folder):
        # TFMA would take the results of the only such signature for both models.
        return f"{folder} has labels that its decode_features makes, and the new model has not"
    default = model_util.get_default_signature_name_from_model(model)
    for name in (*required, *unasked, *(() if spec.signature_name else (default,))):
        try:
            if name in model.signatures:
                _call(model.signatures[name], examples)
        except Exception as error:  # whatever it is, TFMA would fail with it
            return f"{folder} cannot read these examples: {_first_line(error)}"
    return ""


def _call(signature: Any, examples: list[bytes]) -> None:
    """Calls a signature if it takes serialized tf.Examples."""
    arguments = signature.structured_input_signature[1]
    names = [name for name, spec in arguments.items() if spec.dtype == tf.string and spec.shape.rank == 1]
    features = tf.train.Example.FromString(examples[0]).features.feature
    if len(arguments) == 1 and names and names[0] not in features:
        signature(**{names[0]: tf.constant(examples)})


def _read_signature_names(folder: str) -> set[str]:
    with tf.io.gfile.GFile(f"{folder}/saved_model.pb", "rb") as file:
        return set(saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs[0].signature_def)


def _first_line(error: Exception) -> str:
    """Returns the line of an error that has the reason: the first, or one on a feature.

    TensorFlow writes about nodes of the graph before it names the feature.
    """
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines() if line.strip()]
    on_feature = (line for line in lines if re.search(r"\b(Feature|Key):", line))
    line = next(on_feature, lines[0] if lines else type(error).__name__)
    return line.removeprefix("Name: <unknown>, ").removesuffix(".")
