"""Exempts the code of Keras 2 from AutoGraph, but not the user's subclasses."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.keras.keras_models import is_keras_3

_is_exempt = False

# Keras passes these methods to AutoGraph itself before it calls them.
_CONVERTED_BY_KERAS = {"call", "update_state", "result"}


def exempt_tf_keras() -> None:
    """Stops AutoGraph from converting `tf_keras`, as it already leaves `keras` alone.

    TensorFlow 2.16 converts the inside of tf_keras at the first batch, which takes
    about ten seconds and changes nothing. TensorFlow 2.21 has the exemption, and with
    it converts nothing that tf_keras calls either: an `if` on a tensor in a user's
    `train_step` or learning rate schedule fails under `fit`. Here, AutoGraph converts
    methods of the user's subclasses, even though Keras calls them.

    Call this before the user's module is imported, and only in a process of ours: it
    cannot be undone. Does nothing the second time, and in a process that uses Keras 3
    only. AutoGraph's list of rules is private (TensorFlow 2.16 and 2.21).
    """
    global _is_exempt
    if _is_exempt or (is_keras_3() and "tf_keras" not in sys.modules):
        return
    import tf_keras

    config: Any = importlib.import_module("tensorflow.python.autograph.core.config")
    _is_exempt = True
    without_exemption = tuple(rule for rule in config.CONVERSION_RULES if getattr(rule, "_prefix", None) != "tf_keras")
    # Alone in tf_keras, this layer has an `if` on a tensor.
    spectral = tf_keras.layers.SpectralNormalization
    exemption = (config.Convert(spectral.__module__), config.DoNotConvert("tf_keras"), config.DoNotConvert(__name__))
    config.CONVERSION_RULES = (*exemption, *without_exemption)
    spectral.normalize_weights = _convert_when_called(spectral.normalize_weights)

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
            setattr(cls, name, _convert_when_called(method))


def _convert_when_called(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method so that AutoGraph converts it even when exempt code calls it.

    Where AutoGraph is off, it stays off.
    """

    # The wrapper keeps this module as its `__module__`, which AutoGraph leaves alone.
    @functools.wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def call(*arguments: Any, **keyword_arguments: Any) -> Any:
        status = tf.__internal__.autograph.control_status_ctx()
        convert = tf.__internal__.autograph.tf_convert
        return convert(method, status, convert_by_default=False)(*arguments, **keyword_arguments)

    return call
