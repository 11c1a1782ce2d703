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
        spec = {"clusterQueue": whole_name}
        local = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "LocalQueue", "metadata": {"name": name}, "spec": spec}
        place = (GROUP, VERSION, whole_name, "localqueues")
        custom.create_namespaced_custom_object(*place, local)
        cleanup.callback(custom.delete_namespaced_custom_object, *place, name)
        wait_until(lambda: _is_active(custom.get_namespaced_custom_object(*place, name)))
        yield


def _is_active(queue: dict) -> bool:
    conditions = queue.get("status", {}).get("conditions", ())
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def _delete(custom: client.CustomObjectsApi, plural: str, name: str) -> None:
    """Deletes an object, which Kueue keeps until nothing uses it."""
    custom.delete_cluster_custom_object(GROUP, VERSION, plural, name)

    def exists() -> bool:
        items = custom.list_cluster_custom_object(GROUP, VERSION, plural)["items"]
        return name in [each["metadata"]["name"] for each in items]

    wait_until(lambda: not exists())
