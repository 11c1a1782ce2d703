"""Lists what the launcher of a training may have to ask of Kubernetes.

The Role that `tfx-distribute manifests` prints has these rules.
"""

from typing import Any

_JOB_VERBS = ["create", "get", "patch", "delete"]

RULES: list[dict[str, Any]] = [
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": _JOB_VERBS},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": list(_JOB_VERBS)},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
]
