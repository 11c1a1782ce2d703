"""Runs Beam's workers as forks of a process that has imported what they need.

A fresh interpreter needs seconds to import TensorFlow and TFX, and a component starts
workers for each of its Beam pipelines.
"""

import atexit
import functools
import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future

from tfx_distribute.components.fork_client import ForkClient
from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.user_code import module_copy


@functools.cache
def server() -> ForkClient:
    """Returns the fork server of this process; starts it when first called."""
    client = ForkClient(f"{__name__}:prepare", os.environ)
    atexit.register(client.close)
    return client


def start(environment: Mapping[str, str]) -> "Future[int]":
    """Starts a worker with the environment of this process, and more variables."""
    return server().fork(f"{__name__}:run", [], {**os.environ, **environment})


def prepare() -> None:
    """Imports what workers of TFX's and our components need, before they are forked."""
    import tensorflow_data_validation  # noqa: F401 (StatisticsGen)
    from apache_beam.runners.worker import sdk_worker_main  # noqa: F401
    from tfx.components.transform import executor  # noqa: F401

    import tfx_distribute.components.evaluator.executor  # noqa: F401


def run() -> int:
    """Runs a worker until its runner has no more work for it; returns an exit code.

    Its settings are environment variables, which Beam's worker reads.
    """
    module_copy.use()
    with garbage_collection.paused():
        import tensorflow  # noqa: F401 (TFX's components need it)
        from apache_beam.runners.worker import sdk_worker_main
    logging.getLogger().handlers.clear()  # Beam adds one, which passes messages on to the runner
    sdk_worker_main.main([])
    return 0
