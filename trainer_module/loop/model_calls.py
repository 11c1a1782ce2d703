"""Checks the calls that callbacks make of Keras's own loops on their model.

Under multi_worker_mirrored, `predict`, `evaluate` and `fit` communicate. If a callback
calls one in the chief only, the others would go on to something else, and all would
wait for each other. Under parameter_server they take no arrays.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, PeerLostError
from tfx_distribute.trainer_module.loop.step_runner import StepRunner

_METHODS = ("predict", "evaluate", "fit")


@contextlib.contextmanager
def checked(model: tf.keras.Model, step_runner: StepRunner) -> Iterator[None]:
    """Checks the calls that callbacks make within the block.

    Raises:
      ConfigurationError: A callback calls a loop under parameter servers, or one that
        no callback of another process in step calls at the same time.
    """
    has_servers = isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy)
    if not (step_runner.has_peers or has_servers):
        yield
        return

    def check(name: str) -> Any:
        method = getattr(model, name)

        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            if has_servers:
                raise ConfigurationError(
                    f"module: {_find_caller()} calls model.{name}, which does not work under parameter_server; call "
                    "model(x, training=False), or read the metrics of evaluations in the logs of on_epoch_end"
                )
            try:
                step_runner.agree_on_call()
            except PeerLostError as error:
                raise ConfigurationError(
                    f"module: {_find_caller()} calls model.{name} in some processes only, and under "
                    "multi_worker_mirrored all of them have to take part; call it in each, without asking for "
                    "context.is_chief, or call model(x, training=False), which one process can do alone"
                ) from error
            return method(*arguments, **options)

        return call

    for name in _METHODS:
        setattr(model, name, check(name))
    try:
        yield
    finally:
        for name in _METHODS:
            delattr(model, name)


def _find_caller() -> str:
    """Returns the class of the callback that is running."""
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        if hasattr(owner := frame.f_locals.get("self"), "set_model"):
            return type(owner).__name__
    return "a callback"
