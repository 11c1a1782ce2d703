"""Runs Beam's worker in a process that starts and ends quickly."""

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.user_code import module_copy

T = TypeVar("T")


def run() -> None:
    """Runs a worker until its runner has no more work for it, and ends this process.

    Its settings are environment variables, which Beam's worker reads.
    """
    module_copy.use()
    with garbage_collection.paused():
        import tensorflow  # noqa: F401 (TFX's components need it)
        from apache_beam.internal import pickler
        from apache_beam.runners.worker import sdk_worker_main
    # Its threads load functions, and so import packages. Two of them in one package at
    # a time may find it half imported.
    pickler.loads = one_at_a_time(pickler.loads)
    sdk_worker_main.main([])
    # Beam has closed its log. TensorFlow's own end takes a second, for which the runner
    # would wait.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def one_at_a_time(function: Callable[..., T]) -> Callable[..., T]:
    """Returns a function that only one thread at a time is in."""
    lock = threading.RLock()

    @functools.wraps(function)
    def locked(*arguments: Any, **options: Any) -> T:
        with lock:
            return function(*arguments, **options)

    return locked


if __name__ == "__main__":
    run()
