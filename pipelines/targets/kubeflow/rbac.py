"""Makes the Role that lets a run's Trainer train in pods.

It has the permissions that the Trainer uses, and no others.
"""

from typing import Any

import yaml

from tfx_distribute.components.launchers.kubernetes.permissions import RULES

NAME = "tfx-distribute-trainer"
# Those of a standalone Kubeflow Pipelines.
DEFAULT_NAMESPACE, DEFAULT_ACCOUNT = "kubeflow", "pipeline-runner"


def make_manifests(namespace: str, service_account: str) -> list[dict[str, Any]]:
    """Returns a Role and its RoleBinding.

    Args:
      namespace: Namespace of runs.
      service_account: Service account of runs: `pipeline-runner` in a standalone
        Kubeflow Pipelines, `default-editor` in a Kubeflow with profiles.
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


def make_manifests_yaml(namespace: str, service_account: str) -> str:
    """Returns the manifests as YAML, for `kubectl apply -f -`.

    Args:
      namespace: As in `make_manifests`.
      service_account: As in `make_manifests`.
    """
    return yaml.safe_dump_all(make_manifests(namespace, service_account), sort_keys=False)
