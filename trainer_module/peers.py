"""Whether the chief is still there, seen from a process that is not in step with it."""

import socket
import time

import tensorflow as tf

from tfx_distribute.trainer_module.cluster import CHIEF, Task
from tfx_distribute.trainer_module.errors import TrainingError

# How long a process waits for the chief to come, and to come back.
COME_SECONDS = 3600.0
GONE_SECONDS = 30.0


def cluster_spec() -> tf.train.ClusterSpec:
    """The cluster of this process's TF_CONFIG."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()


class ChiefWatch:
    """Looks whether the chief listens on its address, which it does from the making of its strategy to its end.

    Args:
      task: Who this process is, for messages.
    """

    def __init__(self, task: Task):
        self._task = task
        self._host, _, port = cluster_spec().task_address(CHIEF, 0).rpartition(":")
        self._port = int(port)
        self._has_come = False
        self._last_seen = time.monotonic()

    def has_gone(self) -> bool:
        """Whether the chief was there and has not been for `GONE_SECONDS`.

        Raises:
          TrainingError: It has not come for `COME_SECONDS`.
        """
        now = time.monotonic()
        if self._listens():
            self._has_come, self._last_seen = True, now
        silent = now - self._last_seen
        if not self._has_come and silent > COME_SECONDS:
            raise TrainingError(
                f"{self._task} waited {COME_SECONDS:g} s for the chief at {self._host}:{self._port}, which did not come"
            )
        return self._has_come and silent > GONE_SECONDS

    def _listens(self) -> bool:
        try:
            with socket.create_connection((self._host, self._port), timeout=5):
                return True
        except OSError:
            return False
