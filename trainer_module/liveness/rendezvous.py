"""Waits until the other processes of a cluster run, before TensorFlow does.

TensorFlow waits for them in a call that lets no other thread of this process run, for
an hour or without end. Meanwhile, the process would miss SIGTERM, and the end of its
lease.
"""

import contextlib
import socket
from collections.abc import Callable, Mapping

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask
from tfx_distribute.trainer_module.liveness import listening
from tfx_distribute.trainer_module.liveness.peer_loss import cluster_spec


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
        _wait_for({peer: address for peer, address in addresses.items() if peer != chief}, report)
        return
    with _listen(int(addresses[task].rpartition(":")[2])):
        _wait_for({chief: addresses[chief]}, report)


def _listen(port: int) -> contextlib.AbstractContextManager[socket.socket]:
    """Listens on all interfaces, as TensorFlow's server will; accepts nothing."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _wait_for(peers: Mapping[ClusterTask, str], report: Callable[[str], None]) -> None:
    seconds = timeouts.RENDEZVOUS_REPORT_SECONDS
    has_waited = True
    while has_waited:  # one may go while another one is waited for
        has_waited = False
        for peer, address in peers.items():
            has_waited = has_waited or not listening.listens(address)
            while not listening.wait_for([address], seconds, timeouts.RENDEZVOUS_POLL_SECONDS):
                report(_describe(peer, address))
                seconds *= 2


def _describe(peer: ClusterTask, address: str) -> str:
    """Describes what a process waits for."""
    obstacle = listening.find_obstacle(address)
    reason = f": {obstacle}; a firewall, such as a NetworkPolicy, has to admit this port" if obstacle else ""
    return f"waiting for {peer} to listen at {address}{reason}"
