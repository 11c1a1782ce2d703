"""Waits for the other processes of the cluster, and notices when they are gone.

TensorFlow waits for them in a call that lets no other thread of this process run, for
an hour or without end. Meanwhile, the process would miss SIGTERM, and the end of its
lease. So it waits here first.
"""

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PeerLostError, TfxDistributeError, TrainingError, first_line
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask, task_from_environment

# In TensorFlow's messages about a lost process that trains in step with this one.
_PEER_LOST_WORDS = (
    "Collective ops is aborted",
    "coordination service",
    "heartbeat timeout",
    "Socket closed",
    "Connection reset by peer",
)


def cluster_spec() -> tf.train.ClusterSpec:
    """Returns the cluster of this process's TF_CONFIG."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()


def listens(address: str) -> bool:
    """Returns True if a process accepts a connection at HOST:PORT."""
    return _find_obstacle(address) is None


def _find_obstacle(address: str) -> OSError | None:
    """Returns the error of connecting to HOST:PORT; None if a process listens there.

    It is mostly `TimeoutError` if the host does not answer.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return None
    except OSError as error:
        return error


def wait_for(addresses: Iterable[str], seconds: float, pause_seconds: float = 0.02) -> bool:
    """Waits until processes listen at all addresses; returns False if time is over.

    Do so before gRPC connects to a process that starts at the same time: it tries again
    only a second after its connection was refused, and then later each time.
    """
    deadline = time.monotonic() + seconds
    for address in addresses:
        while not listens(address):
            if time.monotonic() > deadline:
                return False
            time.sleep(pause_seconds)
    return True


def meet(task: ClusterTask, report: Callable[[str], None]) -> None:
    """Waits, without a limit, until this process can make its strategy.

    The chief waits for all others, which listen and wait for the chief. `report` gets a
    message for the user after a minute, and ever more rarely.
    """
    cluster = cluster_spec()
    if not cluster.jobs:
        return
    # In a cluster without a chief, worker 0 is the chief.
    chief = CHIEF_TASK if CHIEF in cluster.jobs else ClusterTask(WORKER, 0)
    tasks = [ClusterTask(role, index) for role in cluster.jobs for index in cluster.task_indices(role)]
    addresses = {task: cluster.task_address(task.role, task.index) for task in tasks}
    if task == CHIEF_TASK:
        _wait_for_peers({peer: address for peer, address in addresses.items() if peer != chief}, report)
        return
    with _listen(int(addresses[task].rpartition(":")[2])):
        _wait_for_peers({chief: addresses[chief]}, report)


def _listen(port: int) -> contextlib.AbstractContextManager[socket.socket]:
    """Listens on all interfaces, as TensorFlow's server will; accepts nothing."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _wait_for_peers(peers: Mapping[ClusterTask, str], report: Callable[[str], None]) -> None:
    seconds = timeouts.RENDEZVOUS_REPORT_SECONDS
    for peer, address in peers.items():
        while not wait_for([address], seconds, timeouts.RENDEZVOUS_POLL_SECONDS):
            obstacle = _find_obstacle(address)
            reason = f": {obstacle}; a firewall, such as a NetworkPolicy, has to admit this port" if obstacle else ""
            report(f"waiting for {peer} to listen at {address}{reason}")
            seconds *= 2


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
        if listens(address):
            seen_at = now
        if seen_at is not None and now - seen_at > timeouts.CHIEF_GONE_SECONDS:
            return
        time.sleep(1.0)
