"""Checks that the label of a model with one loss of Keras suits that loss.

A loss computes something from most labels that it is not made for, and a GPU computes
NaN from the number of a class that the model does not have.
"""

from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import LabelRanges

_KERAS = {"keras", "tensorflow", "tf_keras"}
_SPARSE, _BINARY = "sparsecategoricalcrossentropy", "binarycrossentropy"


def check_types(model: tf.keras.Model, features: Features) -> None:
    """Raises ConfigurationError if a label is text and Keras's loss wants numbers."""
    label = _only_label(model, features)
    spec = features.decoded.get(label)
    if spec is not None and spec.dtype == tf.string:
        raise ConfigurationError(
            f"label: {label!r} is text, and the model's loss takes numbers; make it the number of the class in "
            "preprocessing_fn, with tft.compute_and_apply_vocabulary, or in decode_features"
        )


def check_ranges(model: tf.keras.Model, features: Features, ranges: LabelRanges) -> None:
    """Checks that the label is a class that the model has, or a fraction of one class.

    Classes are known if the model is made of layers only. `ranges` are
    `TrainingData.label_ranges`. Raises ConfigurationError if it is neither.
    """
    label, loss = _only_label(model, features), model.loss
    outputs = list(getattr(model, "outputs", None) or ())
    units = outputs[0].shape[-1] if len(outputs) == 1 else None
    for split, (low, high) in ranges.get(label, {}).items():
        found = f"label: {label!r} has values from {low:g} to {high:g} in the split {split!r}"
        if _name(loss) == _SPARSE and units and not _ignores_a_class(loss) and not 0 <= low <= high < units:
            raise ConfigurationError(
                f"{found}, and the model has outputs for the classes 0 to {units - 1}; number the classes from 0, and give "
                "the last layer an output for each; a vocabulary gives -1 to a class that its examples lack: add some, or "
                "write num_oov_buckets=1"
            )
        if _name(loss) == _BINARY and not 0 <= low <= high <= 1:
            raise ConfigurationError(
                f"{found}, and the loss binary_crossentropy is for 0 to 1; change the label in preprocessing_fn, or use "
                "another loss"
            )


def _only_label(model: tf.keras.Model, features: Features) -> str:
    """Returns the label of a model with one loss, of Keras; empty for others."""
    return features.label if isinstance(features.label, str) and _name(model.loss) else ""


def _name(loss: Any) -> str:
    """Returns the name of a loss of Keras without underscores; empty for any other."""
    if isinstance(loss, list | tuple | dict):
        return ""
    if isinstance(loss, str):
        loss = tf.keras.losses.get(loss)
    kind = loss if hasattr(loss, "__name__") else type(loss)
    return kind.__name__.replace("_", "").lower() if loss is not None and kind.__module__.split(".")[0] in _KERAS else ""


def _ignores_a_class(loss: Any) -> bool:
    ignored = (getattr(loss, "ignore_class", None), getattr(loss, "_fn_kwargs", {}).get("ignore_class"))
    return any(each is not None for each in ignored)
