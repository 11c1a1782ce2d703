"""Keeps AutoGraph out of Keras 2's own code, and in the user's code that Keras calls."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.training.model_adapters import is_keras_3

# Methods that Keras itself passes to AutoGraph before it calls them.
_CONVERTED_BY_KERAS = {"call", "update_state", "result"}


def exempt_tf_keras() -> None:
    """Stops AutoGraph from converting `tf_keras`, as it already leaves `keras` alone.

    TensorFlow 2.16 converts the inside of tf_keras at the first batch, which takes about ten seconds and changes nothing;
    from 2.21 on it has this rule itself. AutoGraph still converts methods of the user's subclasses, though Keras calls them.
    A function of the user's that Keras calls, such as an activation, ends the exemption, since it cannot be wrapped: saved
    models refer to it. To be called before the user's module is imported.

    The list of rules is private, so it is used only where it looks as expected.
    """
    if is_keras_3():
        return
    try:
        from tensorflow.python.autograph.core import config
    except ImportError:
        return
    rules = getattr(config, "CONVERSION_RULES", None)
    do_not_convert = getattr(config, "DoNotConvert", None)
    if not isinstance(rules, tuple) or do_not_convert is None:
        return
    if any(getattr(rule, "_prefix", None) == "tf_keras" for rule in rules):
        return
    config.CONVERSION_RULES = (do_not_convert("tf_keras"), do_not_convert(__name__), *rules)

    bases = (
        tf.keras.layers.Layer,  # models and metrics too
        tf.keras.constraints.Constraint,
        tf.keras.optimizers.Optimizer,
        tf.keras.optimizers.legacy.Optimizer,
        tf.keras.optimizers.schedules.LearningRateSchedule,
        tf.keras.regularizers.Regularizer,
    )
    for base in bases:
        _convert_subclasses(base)

    def end_exemption(*arguments: Any, **named: Any) -> None:
        for value in (*arguments, *named.values()):
            function = value.func if isinstance(value, functools.partial) else value
            if callable(function) and not isinstance(function, bases) and not _is_library(function.__module__):
                config.CONVERSION_RULES = rules

    for getter in (tf.keras.activations.get, tf.keras.constraints.get, tf.keras.regularizers.get):
        _call_first(sys.modules[getter.__module__], "get", end_exemption)
    _call_first(tf.keras.layers.Lambda, "__init__", end_exemption)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("tf_keras", "tensorflow")


def _convert_subclasses(base: type) -> None:
    """Makes AutoGraph convert the methods by which the user's subclasses of a Keras class override Keras's."""

    def __init_subclass__(cls: type, **arguments: Any) -> None:  # noqa: N807
        super(base, cls).__init_subclass__(**arguments)  # type: ignore[arg-type]  # base is a class
        if not _is_library(cls.__module__):
            _convert_overrides(cls)

    base.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]


def _convert_overrides(cls: type) -> None:
    names = {name for owner in cls.__mro__ if _is_library(owner.__module__) for name in vars(owner)}
    for name in names - _CONVERTED_BY_KERAS:
        method = inspect.getattr_static(cls, name)
        special = name.startswith("__") and name != "__call__"
        if (
            inspect.isfunction(method)
            and not special
            and not _is_library(method.__module__)
            and method.__module__ != __name__
        ):
            setattr(cls, name, _converted(method))


def _converted(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that AutoGraph converts where it converts at all, whichever code calls it."""

    # Its module stays this one, which AutoGraph leaves alone.
    @functools.wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def call(*arguments: Any, **named: Any) -> Any:
        status = tf.__internal__.autograph.control_status_ctx()
        convert = tf.__internal__.autograph.tf_convert
        return convert(method, status, convert_by_default=False)(*arguments, **named)

    return call


def _call_first(owner: Any, name: str, first: Callable[..., None]) -> None:
    """Calls `first` with the same arguments whenever a function of a module or class is called."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        first(*arguments, **named)
        return function(*arguments, **named)

    setattr(owner, name, call)
