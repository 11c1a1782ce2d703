"""Makes the Role that lets a run's Trainer train in pods.

It has the permissions that the Trainer uses, and no others.
"""

from typing import Any

import yaml

NAME = "tfx-distribute-trainer"

_JOB_VERBS = ["create", "get", "patch", "delete"]
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": _JOB_VERBS},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": list(_JOB_VERBS)},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
]
"""Rules of the Role: all permissions that the launcher of a training uses."""


def make_manifests(namespace: str, service_account: str) -> str:
    """Returns a Role and its RoleBinding as YAML, for `kubectl apply -f -`.

    The service account of runs is `pipeline-runner` in a standalone Kubeflow Pipelines,
    `default-editor` in a Kubeflow with profiles.
    """
    metadata = {"name": NAME, "namespace": namespace}
    api = "rbac.authorization.k8s.io"
    documents = [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": RULES},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
        },
    ]
    return yaml.safe_dump_all(documents, sort_keys=False)
