"""Whether other processes of the cluster are still there."""

import os
import re
import socket
import time
from collections.abc import Mapping

import tensorflow as tf

from tfx_distribute.trainer_module.errors import PeerLostError, TfxDistributeError, TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.job.training_job import FaultTolerance
from tfx_distribute.trainer_module.lifecycle.progress import LOCAL_HEARTBEATS, PROGRESS_FILE

# How long a process waits for the chief to come, and to come back.
COME_SECONDS = 3600.0
GONE_SECONDS = 30.0


def cluster_spec() -> tf.train.ClusterSpec:
    """The cluster of this process's TF_CONFIG."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()


def heartbeat_timeout(recovery: FaultTolerance, environ: Mapping[str, str]) -> int:
    """Returns the seconds without a heartbeat after which TensorFlow gives up a process.

    Args:
      recovery: The pipeline's parameters.
      environ: Environment of this process; with `PROGRESS_FILE` where a launcher on this machine follows it.
    """
    # A launcher on this machine sees by itself which process hangs, and processes that were suspended together look dead to
    # each other when they wake up.
    return recovery.heartbeat_timeout_secs * (LOCAL_HEARTBEATS if PROGRESS_FILE in environ else 1)


_WORDS = (  # TensorFlow's, where a process in step with this one is gone
    "Collective ops is aborted",
    "coordination service",
    "heartbeat timeout",
    "Socket closed",
    "Connection reset by peer",
)


def as_peer_lost_error(error: BaseException) -> PeerLostError | None:
    """What an error means that TensorFlow raised since another process is gone; None of any other error.

    TensorFlow names the process in the error's text, but not always.
    """
    if isinstance(error, TfxDistributeError) or not cluster_spec().jobs:
        return None
    text = str(error)
    gone = isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.DeadlineExceededError)
    told = isinstance(error, tf.errors.OpError | RuntimeError) and any(words in text for words in _WORDS)
    if not (gone or told):
        return None
    own = task_from_environment(os.environ)
    # Where there is no chief, worker 0 is called so here, and by its own name in TensorFlow.
    itself = {own} if own != CHIEF_TASK or CHIEF in cluster_spec().jobs else {own, ClusterTask(WORKER, 0)}
    named = {ClusterTask(role, int(index)) for role, index in re.findall(r"/job:(\w+)/replica:0/task:(\d+)", text)}
    others = sorted(named - itself)
    who = " and ".join(map(str, others)) or "another process of the cluster"
    return PeerLostError(f"{own} has lost {who}: {text.strip().splitlines()[0]}")


class ChiefMonitor:
    """Looks whether the chief listens on its address, which it does from the making of its strategy to its end.

    Args:
      task: Who this process is, for messages.
    """

    def __init__(self, task: ClusterTask):
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
