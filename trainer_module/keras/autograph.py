"""Has AutoGraph convert the user's code, and not this package's or Keras 2's."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras.keras_models import is_keras_3

# Has loops over tensors. Elsewhere, only functions that `tf.function` gets are
# converted, not what they call.
_CONVERTED = "tfx_distribute.trainer_module.loop.step_runner"

_are_exempt: set[str] = set()

# Keras passes these methods to AutoGraph itself before it calls them.
_CONVERTED_BY_KERAS = {"call", "update_state", "result"}


def exempt_libraries() -> None:
    """Stops AutoGraph from converting this package and `tf_keras`.

    It already leaves `keras` alone. To convert the training loop takes each process a
    second, and what TensorFlow 2.16 converts of tf_keras at the first batch ten; it
    changes nothing. TensorFlow 2.21 has the exemption of tf_keras, and with it converts
    nothing that tf_keras calls either: an `if` on a tensor in a user's `train_step` or
    learning rate schedule fails under `fit`. Here, AutoGraph converts methods of the
    user's subclasses, even though Keras calls them. For code of the user's that this
    package calls, see `converted`.

    Call this before the user's module is imported, and only in a process of ours: it
    cannot be undone. Does nothing the second time; tf_keras is left as it is in a
    process that uses Keras 3 only. AutoGraph's list of rules is private (TensorFlow
    2.16 and 2.21).
    """
    config: Any = importlib.import_module("tensorflow.python.autograph.core.config")
    package = __name__.partition(".")[0]
    if package not in _are_exempt:
        _are_exempt.add(package)
        config.CONVERSION_RULES = (config.Convert(_CONVERTED), config.DoNotConvert(package), *config.CONVERSION_RULES)
    if "tf_keras" in _are_exempt or (is_keras_3() and "tf_keras" not in sys.modules):
        return
    import tf_keras

    _are_exempt.add("tf_keras")
    without_exemption = tuple(rule for rule in config.CONVERSION_RULES if getattr(rule, "_prefix", None) != "tf_keras")
    # Alone in tf_keras, this layer has an `if` on a tensor.
    spectral = tf_keras.layers.SpectralNormalization
    exemption = (config.Convert(spectral.__module__), config.DoNotConvert("tf_keras"))
    config.CONVERSION_RULES = (*exemption, *without_exemption)
    spectral.normalize_weights = converted(spectral.normalize_weights)

    for base in (
        tf_keras.layers.Layer,  # models and metrics too
        tf_keras.constraints.Constraint,
        tf_keras.optimizers.Optimizer,
        tf_keras.optimizers.legacy.Optimizer,
        tf_keras.optimizers.schedules.LearningRateSchedule,
        tf_keras.regularizers.Regularizer,
    ):
        _convert_subclasses(base)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("tf_keras", "tensorflow")


def _convert_subclasses(base: type) -> None:
    """Makes AutoGraph convert Keras methods that the user's subclasses override."""

    def __init_subclass__(cls: type, **arguments: Any) -> None:  # noqa: N807
        super(base, cls).__init_subclass__(**arguments)  # type: ignore[arg-type]  # base is a class
        if not _is_library(cls.__module__):
            _convert_overrides(cls)

    base.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def _convert_overrides(cls: type) -> None:
    names = {name for owner in cls.__mro__ if _is_library(owner.__module__) for name in vars(owner)}
    for name in names - _CONVERTED_BY_KERAS:
        method = inspect.getattr_static(cls, name)
        is_special = name.startswith("__") and name != "__call__"
        is_users = inspect.isfunction(method) and not _is_library(method.__module__) and method.__module__ != __name__
        if is_users and not is_special:
            setattr(cls, name, converted(method))


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that may be the user's, so that AutoGraph converts it.

    It would not where exempt code calls it. Where AutoGraph is off, it stays off.
    """

    # The wrapper keeps this module as its `__module__`, which AutoGraph leaves alone.
    @functools.wraps(function, assigned=("__name__", "__qualname__", "__doc__"))
    def call(*arguments: Any, **keyword_arguments: Any) -> Any:
        status = tf.__internal__.autograph.control_status_ctx()
        convert = tf.__internal__.autograph.tf_convert
        return convert(function, status, convert_by_default=False)(*arguments, **keyword_arguments)

    return call
