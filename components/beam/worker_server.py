"""Starts Beam workers as forks of a process that has imported what they need.

A fresh interpreter needs seconds to import TensorFlow and TFX, and a component starts
workers for each of its Beam pipelines.
"""

import atexit
import functools
import os
from collections.abc import Mapping
from concurrent.futures import Future

from tfx_distribute.components.fork_client import ForkClient

_WORKER = "tfx_distribute.components.beam.worker_process"


@functools.cache
def shared() -> ForkClient:
    """Returns the server of this process; starts it when first called."""
    server = ForkClient(f"{_WORKER}:prepare", os.environ)
    atexit.register(server.close)
    return server


def start(environment: Mapping[str, str]) -> "Future[int]":
    """Starts a worker with the environment of this process, and more variables."""
    return shared().fork(f"{_WORKER}:run", [], {**os.environ, **environment})
