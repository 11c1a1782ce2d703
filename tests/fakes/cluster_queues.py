"""Makes queues of Kueue on a real cluster, for tests."""

import contextlib
from collections.abc import Iterator

from kubernetes import client
from real_cluster import Namespace, wait_until

GROUP, VERSION = "kueue.x-k8s.io", "v1beta1"
PRIORITY_LABEL = f"{GROUP}/priority-class"


@contextlib.contextmanager
def queue(namespace: Namespace, name: str, resource: str, amount: str) -> Iterator[None]:
    """Provides a queue, whose jobs yield to those of a higher priority.

    Args:
      namespace: Its namespace, whose name is that of a priority class above the
        default, too.
      name: Name of the queue.
      resource: The one resource that it counts.
      amount: How much of it there is.
    """
    whole_name, custom = namespace.name, namespace.custom
    resources = {"name": whole_name, "resources": [{"name": resource, "nominalQuota": amount}]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": whole_name}}
    whole = {
        "namespaceSelector": selector,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [resource], "flavors": [resources]}],
    }
    with contextlib.ExitStack() as cleanup:
        for kind, plural, more in (
            ("ResourceFlavor", "resourceflavors", {"spec": {}}),
            ("ClusterQueue", "clusterqueues", {"spec": whole}),
            ("WorkloadPriorityClass", "workloadpriorityclasses", {"value": 1000}),
        ):
            body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": whole_name}, **more}
            custom.create_cluster_custom_object(GROUP, VERSION, plural, body)
            cleanup.callback(_delete, custom, plural, whole_name)
        cleanup.enter_context(local_queue(namespace, name, whole_name))
        wait_until(lambda: _is_active(namespace, name))
        yield


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
    """Deletes an object, which Kueue keeps until nothing uses it."""
    custom.delete_cluster_custom_object(GROUP, VERSION, plural, name)
    wait_until(lambda: name not in _names(custom, plural))


def _names(custom: client.CustomObjectsApi, plural: str) -> list[str]:
    return [each["metadata"]["name"] for each in custom.list_cluster_custom_object(GROUP, VERSION, plural)["items"]]
