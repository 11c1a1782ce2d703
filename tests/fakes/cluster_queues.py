"""Makes queues of Kueue on a real cluster, for tests."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from kubernetes import client
from real_cluster import Namespace, wait_until

GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"
PRIORITY_LABEL = f"{GROUP}/priority-class"


@dataclass(frozen=True)
class Queue:
    """A LocalQueue, and a priority class above the default.

    Attributes:
      name: Name of the queue.
      urgent: Name of the priority class.
    """

    name: str
    urgent: str


@contextlib.contextmanager
def queue(namespace: Namespace, cpus: str) -> Iterator[Queue]:
    """Provides a queue of so many CPUs, whose jobs yield to those of more priority."""
    name, custom = namespace.name, namespace.custom
    resources = {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpus}]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    whole = {
        "namespaceSelector": selector,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [resources]}],
    }
    with contextlib.ExitStack() as cleanup:
        for kind, plural, more in (
            ("ResourceFlavor", "resourceflavors", {"spec": {}}),
            ("ClusterQueue", "clusterqueues", {"spec": whole}),
            ("WorkloadPriorityClass", "workloadpriorityclasses", {"value": 1000}),
        ):
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}, **more}
            custom.create_cluster_custom_object(GROUP, VERSION, plural, body)
            cleanup.callback(_delete, custom, plural, name)
        cleanup.enter_context(local_queue(namespace, "team", name))
        wait_until(lambda: _is_active(namespace, "team"))
        yield Queue("team", name)


@contextlib.contextmanager
def local_queue(namespace: Namespace, name: str, cluster_queue: str) -> Iterator[None]:
    """Provides a LocalQueue of a ClusterQueue, which need not exist."""
    custom = namespace.custom
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "LocalQueue",
        "metadata": {"name": name},
        "spec": {"clusterQueue": cluster_queue},
    }
    custom.create_namespaced_custom_object(GROUP, VERSION, namespace.name, "localqueues", body)
    try:
        wait_until(lambda: _find(namespace, name).get("status", {}).get("conditions"))
        yield
    finally:
        custom.delete_namespaced_custom_object(GROUP, VERSION, namespace.name, "localqueues", name)


def _find(namespace: Namespace, name: str) -> dict:
    found: dict = namespace.custom.get_namespaced_custom_object(GROUP, VERSION, namespace.name, "localqueues", name)
    return found


def _is_active(namespace: Namespace, name: str) -> bool:
    conditions = _find(namespace, name).get("status", {}).get("conditions", ())
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def _delete(custom: client.CustomObjectsApi, plural: str, name: str) -> None:
    custom.delete_cluster_custom_object(GROUP, VERSION, plural, name)
