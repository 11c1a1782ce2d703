"""Detects the loss of other processes of the cluster."""

import os
import re
import time

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PeerLostError, TfxDistributeError, TrainingError, first_line
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.liveness import listening


def cluster_spec() -> tf.train.ClusterSpec:
    """Returns the cluster of this process's TF_CONFIG."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()


# In TensorFlow's messages about a lost process that trains in step with this one.
_PEER_LOST_WORDS = (
    "Collective ops is aborted",
    "coordination service",
    "heartbeat timeout",
    "Socket closed",
    "Connection reset by peer",
)


def as_peer_lost_error(error: BaseException) -> PeerLostError | None:
    """Returns the `PeerLostError` for an error caused by the loss of another process.

    It names that process if TensorFlow's message does. A service that does not answer
    may raise the same error, and is worth another try too. Of a `TrainingError`, which
    describes what could not be saved or restored, the cause counts.
    """
    cause = error.__cause__ if isinstance(error, TrainingError) else error
    if cause is None or isinstance(cause, TfxDistributeError) or not cluster_spec().jobs:
        return None
    text = str(cause)
    type_matches = isinstance(cause, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.DeadlineExceededError)
    text_matches = isinstance(cause, tf.errors.OpError | RuntimeError) and any(words in text for words in _PEER_LOST_WORDS)
    if not (type_matches or text_matches):
        return None
    task = task_from_environment(os.environ)
    # In a cluster without a chief, worker 0 is called the chief here, but keeps its
    # name in TensorFlow's messages.
    own_names = {task} if task != CHIEF_TASK or CHIEF in cluster_spec().jobs else {task, ClusterTask(WORKER, 0)}
    named = {ClusterTask(role, int(index)) for role, index in re.findall(r"/job:(\w+)/replica:0/task:(\d+)", text)}
    peers = " and ".join(map(str, sorted(named - own_names))) or "another process of the cluster"
    return PeerLostError(f"{task} has lost {peers}: {first_line(cause)}")


class ChiefMonitor:
    """Checks if the chief is still there by connecting to its address.

    The chief listens there from the creation of its strategy until it ends.
    """

    def __init__(self) -> None:
        self._address = cluster_spec().task_address(CHIEF, 0)
        self._seen_at: float | None = None

    def has_gone(self) -> bool:
        """Returns True if the chief was there, and has been missing for long.

        Call this every few seconds: the time counts from the last call that reached the
        chief.
        """
        now = time.monotonic()
        if listening.listens(self._address):
            self._seen_at = now
        return self._seen_at is not None and now - self._seen_at > timeouts.CHIEF_GONE_SECONDS
