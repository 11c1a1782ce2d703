"""Finds out whether other processes of the cluster listen, and waits until all run.

TensorFlow waits for them in a call that lets no other thread of this process run, for
an hour or without end. Meanwhile, the process would miss SIGTERM, and the end of its
lease.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask


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
            report(_describe(peer, address))
            seconds *= 2


def _describe(peer: ClusterTask, address: str) -> str:
    obstacle = _find_obstacle(address)
    reason = f": {obstacle}; a firewall, such as a NetworkPolicy, has to admit this port" if obstacle else ""
    return f"waiting for {peer} to listen at {address}{reason}"
