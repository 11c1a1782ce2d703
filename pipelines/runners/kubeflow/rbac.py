"""What the service account of a run has to be allowed so that its Trainer can run a TFJob: no more than it asks for."""

from typing import Any

import yaml

NAME = "tfx-distribute-trainer"
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["create", "get", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def manifests(namespace: str, service_account: str) -> list[dict[str, Any]]:
    """A Role and its RoleBinding.

    Args:
      namespace: Namespace of runs.
      service_account: Service account of runs: `pipeline-runner` of Kubeflow Pipelines by itself, `default-editor` of a
        Kubeflow with profiles.
    """
    metadata = {"name": NAME, "namespace": namespace}
    api = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": RULES},
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
        },
    ]


def as_yaml(namespace: str, service_account: str) -> str:
    """The same, for `kubectl apply -f -`."""
    return yaml.safe_dump_all(manifests(namespace, service_account), sort_keys=False)
