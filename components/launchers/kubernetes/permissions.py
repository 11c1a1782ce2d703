"""Lists what the launcher of a training may have to ask of Kubernetes.

The Role that `tfx-distribute manifests` prints is made from this list, and the launcher
checks what it needs of it before it starts a training. Pure functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_JOB_VERBS = ["create", "get", "patch", "delete"]

RULES: list[dict[str, Any]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": _JOB_VERBS},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": list(_JOB_VERBS)},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues", "workloads"], "verbs": ["list"]},
]
_JOBS = ("tfjobs", "jobsets")


@dataclass(frozen=True)
class Permission:
    """One verb on one resource.

    Attributes:
      group: API group; empty for the core group.
      resource: Resource, such as `pods` or `pods/log`.
      verb: Verb, such as `list`.
    """

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


# They only explain why pods do not start. Roles from before they were asked for lack
# them.
LIST_EVENTS = Permission("", "events", "list")
LIST_QUEUES = Permission("kueue.x-k8s.io", "localqueues", "list")
LIST_WORKLOADS = Permission("kueue.x-k8s.io", "workloads", "list")
_EXPLAINING = {LIST_EVENTS, LIST_QUEUES, LIST_WORKLOADS}


def needed(resource: str) -> list[Permission]:
    """Returns the permissions without which a launcher cannot follow a job.

    Args:
      resource: Resource of the job, such as `tfjobs`.
    """
    return [
        each
        for each in _permissions()
        if each not in _EXPLAINING and (each.resource not in _JOBS or each.resource == resource)
    ]


def _permissions() -> Iterator[Permission]:
    """Yields the permissions that `RULES` grant."""
    for rule in RULES:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Permission(group, resource, verb)


def make_review(permission: Permission, namespace: str) -> dict[str, Any]:
    """Returns the SelfSubjectAccessReview that asks for a permission in a namespace."""
    resource, _, subresource = permission.resource.partition("/")
    attributes = {"namespace": namespace, "group": permission.group, "resource": resource, "verb": permission.verb}
    if subresource:
        attributes["subresource"] = subresource
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
