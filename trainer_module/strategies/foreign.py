"""Refuses strategies that a module makes in addition to the one of its training.

A strategy that a module makes in one of several processes sees the devices of all of
them. TensorFlow does not refuse it: training then hangs, or ends with a segmentation
fault.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NoReturn
from unittest import mock

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError

_CLASSES = [
    each
    for module in (tf.distribute, tf.distribute.experimental)
    for name, each in vars(module).items()
    if name.endswith("Strategy") and each is not tf.distribute.Strategy
]


@contextlib.contextmanager
def refusing_own_strategies(function: str) -> Iterator[None]:
    """Makes classes of `tf.distribute` raise ConfigurationError within the block."""

    def refuse(strategy: tf.distribute.Strategy, *_: Any, **__: Any) -> NoReturn:
        caller = sys._getframe(1)
        raise ConfigurationError(
            f"module: {function} made a {type(strategy).__name__} of its own ({caller.f_code.co_filename}, line "
            f"{caller.f_lineno}), but it is one of several processes that train one model; call "
            "tfx_distribute.trainer_module.get_strategy() in its place and build the model in its scope()"
        )

    with contextlib.ExitStack() as stack:
        for strategy_class in _CLASSES:
            stack.enter_context(mock.patch.object(strategy_class, "__init__", refuse))
        yield
