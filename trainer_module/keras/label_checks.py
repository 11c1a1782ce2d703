"""Checks that the losses of Keras can learn from the labels that there are.

A loss computes something from most labels that it is not made for, and a GPU computes
NaN from the number of a class that the model does not have.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError

_KERAS = {"keras", "tensorflow", "tf_keras"}
_SPARSE, _BINARY = "sparsecategoricalcrossentropy", "binarycrossentropy"


def check_types(model: tf.keras.Model, features: Features) -> None:
    """Checks that labels are numbers if the model has a loss of Keras for them.

    Args:
      model: A compiled model.
      features: The features of the examples.

    Raises:
      ConfigurationError: A label is text.
    """
    for label, loss, _ in _losses(model, features.label):
        spec = features.decoded.get(label)
        if _name(loss) and spec is not None and spec.dtype == tf.string:
            raise ConfigurationError(
                f"label: {label!r} is text, and the model's loss takes numbers; make it the number of the class in "
                "preprocessing_fn, with tft.compute_and_apply_vocabulary, or in decode_features"
            )


def check_ranges(model: tf.keras.Model, features: Features, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Checks that labels are classes that the model has, or fractions of one class.

    Args:
      model: A compiled model. Outputs are known for those made of layers only.
      features: The features of the examples.
      ranges: Name of a label -> its smallest and largest value, where known.

    Raises:
      ConfigurationError: A label is not.
    """
    for label, loss, output in _losses(model, features.label):
        low, high = ranges.get(label, (0, 0))
        units = output.shape[-1] if output is not None else None
        if _name(loss) == _SPARSE and units and not _ignores_a_class(loss) and not 0 <= low <= high < units:
            raise ConfigurationError(
                f"label: {label!r} has values from {low:g} to {high:g}, and the model has outputs for the classes 0 to "
                f"{units - 1}; number the classes from 0, and give the last layer an output for each"
            )
        if _name(loss) == _BINARY and not 0 <= low <= high <= 1:
            raise ConfigurationError(
                f"label: {label!r} has values from {low:g} to {high:g}, and the loss binary_crossentropy is for 0 to 1; "
                "change the label in preprocessing_fn, or use another loss"
            )


def _losses(model: tf.keras.Model, label: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name of each label, its loss, and the output for it if known."""
    loss = model.loss
    outputs = list(getattr(model, "outputs", None) or ())
    if isinstance(label, str):
        if not isinstance(loss, dict | list | tuple):
            yield label, loss, outputs[0] if len(outputs) == 1 else None
        return
    names = list(getattr(model, "output_names", None) or ())
    by_name = dict(zip(names, outputs, strict=False))
    for position, (output, feature) in enumerate((label or {}).items()):
        index = names.index(output) if output in names else position
        if isinstance(loss, list | tuple):
            yield feature, loss[index] if index < len(loss) else None, by_name.get(output)
        else:
            yield feature, loss.get(output) if isinstance(loss, dict) else loss, by_name.get(output)


def _name(loss: Any) -> str:
    """Returns the name of a loss of Keras without underscores; empty for any other."""
    if isinstance(loss, str):
        loss = tf.keras.losses.get(loss)
    kind = loss if hasattr(loss, "__name__") else type(loss)
    return kind.__name__.replace("_", "").lower() if loss is not None and kind.__module__.split(".")[0] in _KERAS else ""


def _ignores_a_class(loss: Any) -> bool:
    ignored = (getattr(loss, "ignore_class", None), getattr(loss, "_fn_kwargs", {}).get("ignore_class"))
    return any(each is not None for each in ignored)
