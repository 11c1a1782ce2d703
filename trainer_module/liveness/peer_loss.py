"""Detects the loss of other processes of the cluster."""

import os
import re
import time

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PeerLostError, TfxDistributeError, TrainingError, first_line
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask, task_from_environment
from tfx_distribute.trainer_module.liveness import rendezvous
from tfx_distribute.trainer_module.liveness.rendezvous import cluster_spec

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


def wait_until_chief_is_gone() -> None:
    """Returns once the chief was there, and has been missing for long.

    The chief listens at its address from the creation of its strategy until it ends.
    """
    address = cluster_spec().task_address(CHIEF, 0)
    seen_at = None
    while True:
        now = time.monotonic()
        if rendezvous.listens(address):
            seen_at = now
        if seen_at is not None and now - seen_at > timeouts.CHIEF_GONE_SECONDS:
            return
        time.sleep(1.0)
