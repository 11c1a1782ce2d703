"""Runs Beam's worker in a process that starts and ends quickly."""

import os
import sys

from tfx_distribute.trainer_module import garbage_collection
from tfx_distribute.trainer_module.user_code import module_copy


def run() -> None:
    """Runs a worker until its runner has no more work for it, and ends this process.

    Its settings are environment variables, which Beam's worker reads.
    """
    module_copy.use()
    with garbage_collection.paused():
        import tensorflow  # noqa: F401 (TFX's components need it)
        from apache_beam.runners.worker import sdk_worker_main
    sdk_worker_main.main([])
    # Beam has closed its log. TensorFlow's own end takes a second, for which the runner
    # would wait.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    run()
