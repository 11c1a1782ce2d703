"""Lists what a TFJob's launcher may have to ask of Kubernetes.

The Role that `tfx-distribute manifests` prints is made from this list, and the launcher
checks it before it starts a training. Pure functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RULES: list[dict[str, Any]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["create", "get", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
]


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


# Only explains why pods do not start. Roles from before it was asked for lack it.
LIST_EVENTS = Permission("", "events", "list")


def permissions() -> Iterator[Permission]:
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
