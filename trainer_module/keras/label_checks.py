"""Checks that the losses of Keras can learn from the labels that there are.

A loss computes something from most labels that it is not made for, and a GPU computes
NaN from the number of a class that the model does not have.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import LabelRanges

_KERAS = {"keras", "tensorflow", "tf_keras"}
_NUMBER_CLASSES = "number the classes from 0, and give the last layer an output for each"
_SPARSE, _BINARY = "sparsecategoricalcrossentropy", "binarycrossentropy"


def check_types(model: tf.keras.Model, features: Features) -> None:
    """Raises ConfigurationError if a label is text and Keras's loss wants numbers."""
    for label, loss, _ in _losses(model, features.label):
        spec = features.decoded.get(label)
        if _name(loss) and spec is not None and spec.dtype == tf.string:
            raise ConfigurationError(
                f"label: {label!r} is text, and the model's loss takes numbers; make it the number of the class in "
                "preprocessing_fn, with tft.compute_and_apply_vocabulary, or in decode_features"
            )


def check_ranges(model: tf.keras.Model, features: Features, ranges: LabelRanges) -> None:
    """Checks that labels are classes that the model has, or fractions of one class.

    Classes are known if the model is made of layers only. `ranges` are
    `TrainingData.label_ranges`. Raises ConfigurationError if a label is not.
    """
    for label, loss, output in _losses(model, features.label):
        for position, (split, (low, high)) in enumerate(ranges.get(label, {}).items()):
            found = f"label: {label!r} has values from {low:g} to {high:g} in the split {split!r}"
            units = output.shape[-1] if output is not None else None
            if _name(loss) == _SPARSE and units and not _ignores_a_class(loss) and not 0 <= low <= high < units:
                is_unknown = position > 0 and low == -1 and high < units
                raise ConfigurationError(
                    f"{found}, and the model has outputs for the classes 0 to {units - 1}; "
                    + (_unknown_class(next(iter(ranges[label])), split) if is_unknown else _NUMBER_CLASSES)
                )
            if _name(loss) == _BINARY and not 0 <= low <= high <= 1:
                raise ConfigurationError(
                    f"{found}, and the loss binary_crossentropy is for 0 to 1; change the label in preprocessing_fn, or use "
                    "another loss"
                )


def _unknown_class(train: str, split: str) -> str:
    """Returns what to do about a -1 that only the later of two splits has."""
    return (
        f"a vocabulary gives -1 to a class that the split {train!r} has no example of: add examples of the class, make the "
        f"split {split!r} smaller in data.splits, or leave the class out of the data; or write num_oov_buckets=1 for the "
        "vocabulary, and give the last layer one more output"
    )


def _losses(model: tf.keras.Model, label: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name of each label, its loss, and the output for it if known."""
    loss, outputs = model.loss, _outputs(model)
    if isinstance(label, str):  # serves every loss
        size = len(loss) if isinstance(loss, list | tuple) else 1
        label = dict.fromkeys(outputs or (loss if isinstance(loss, dict) else range(size)), label)
    label = label or {}
    if isinstance(loss, list | tuple):
        loss = dict(zip(outputs or label, loss, strict=False))
    for output, feature in label.items():
        yield feature, loss.get(output) if isinstance(loss, dict) else loss, outputs.get(output)


def _outputs(model: tf.keras.Model) -> dict[Any, Any]:
    """Returns a model's outputs, by the names that its losses have for them.

    They have the order of a list of losses. Those of a dictionary go by its keys, not
    by the names of layers, and Keras sorts them. Empty if none is known.
    """
    named = getattr(model, "output", None)
    if isinstance(named, dict) and not any(tf.nest.is_nested(output) for output in named.values()):
        return {name: named[name] for name in sorted(named)}
    outputs = list(getattr(model, "outputs", None) or ())
    names = list(getattr(model, "output_names", None) or ())
    # In Keras 3, outputs of one layer have one name.
    return dict(zip(names if len(set(names)) == len(outputs) else range(len(outputs)), outputs, strict=True))


def _name(loss: Any) -> str:
    """Returns the name of a loss of Keras without underscores; empty for any other."""
    if isinstance(loss, str):
        loss = tf.keras.losses.get(loss)
    kind = loss if hasattr(loss, "__name__") else type(loss)
    return kind.__name__.replace("_", "").lower() if loss is not None and kind.__module__.split(".")[0] in _KERAS else ""


def _ignores_a_class(loss: Any) -> bool:
    ignored = (getattr(loss, "ignore_class", None), getattr(loss, "_fn_kwargs", {}).get("ignore_class"))
    return any(each is not None for each in ignored)
