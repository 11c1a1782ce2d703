"""Waits until the other processes of a cluster run, before TensorFlow does.

TensorFlow waits for them in a call that lets no other thread of this process run, for
an hour or without end. Meanwhile it would notice neither SIGTERM nor that nobody
follows the training any more.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable

from tfx_distribute.trainer_module.job.cluster import CHIEF, CHIEF_TASK, WORKER, ClusterTask
from tfx_distribute.trainer_module.lifecycle import listening
from tfx_distribute.trainer_module.lifecycle.peer_loss import cluster_spec

POLL_SECONDS = 1.0
REPORT_SECONDS = 60.0  # until the first report; doubles after each one


def meet(task: ClusterTask, report: Callable[[str], None]) -> None:
    """Waits, without a limit, until this process can make its strategy.

    The chief waits for all others, which listen and wait for the chief. A process that
    trains alone waits for nobody.

    ```python
    meet(ClusterTask("worker", 0), print)  # prints: waiting for chief to start
    ```

    Args:
      task: This process, in the cluster of its TF_CONFIG.
      report: Called with a message for the user after a minute, and ever more rarely.
    """
    cluster = cluster_spec()
    if not cluster.jobs:
        return
    # In a cluster without a chief, worker 0 is the chief.
    chief = CHIEF_TASK if CHIEF in cluster.jobs else ClusterTask(WORKER, 0)
    tasks = [ClusterTask(role, index) for role in cluster.jobs for index in cluster.task_indices(role)]
    addresses = {task: cluster.task_address(task.role, task.index) for task in tasks}
    if task == CHIEF_TASK:
        _wait_for({peer: address for peer, address in addresses.items() if peer != chief}.items(), report)
        return
    with _listen(int(addresses[task].rpartition(":")[2])):
        _wait_for([(chief, addresses[chief])], report)


def _listen(port: int) -> contextlib.AbstractContextManager[socket.socket]:
    """Listens on all interfaces, as TensorFlow's server will; accepts nothing."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _wait_for(peers: Iterable[tuple[ClusterTask, str]], report: Callable[[str], None]) -> None:
    start, report_after = time.monotonic(), REPORT_SECONDS
    for peer, address in peers:
        while not listening.listens(address):
            if time.monotonic() - start >= report_after:
                report(f"waiting for {peer} to start, at {address}")
                report_after *= 2
            time.sleep(POLL_SECONDS)
