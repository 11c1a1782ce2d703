"""Knows some of the words with which a cluster says why a training does not start.

What is not known here is passed on as it is, and may end. Pure functions.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_IMAGE = "write another targets.kubeflow.image, or name the secret of its registry in image_pull_secrets"
_NO_PACKAGE = (
    "the image lacks tfx-distribute: build it from the Dockerfile of tfx-distribute, or install the package in it, and "
    "write it as targets.kubeflow.image"
)
# Reasons that only a person can remove: waiting for other jobs to end does not help.
_FINAL = re.compile(
    r"LocalQueue \S+ doesn't exist|violates PodSecurity|must specify|serviceaccount \S+ not found|runAsNonRoot"
)
# The first pattern that matches decides.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"failed quota: .*must specify", "write cpu and memory for this component in resources, which the quota counts"),
    (r"LocalQueue \S+ doesn't exist", "write the name of a queue of the namespace in targets.kubeflow.queue"),
    (r"> maximum capacity", "ask for smaller or fewer machines in resources, or have the quota of the queue raised"),
    (r"exceeded quota", "ask for smaller or fewer machines in resources, or have the quota of the namespace raised"),
    (
        r"violates PodSecurity",
        "write what the namespace asks for in targets.kubeflow.security_context, or run in another namespace",
    ),
    (r"serviceaccount .*not found", "create it in the namespace, or name another targets.kubeflow.service_account"),
    (r"pull image|ErrImage|ImagePull|InvalidImageName", _IMAGE),
    (r"persistentvolumeclaim .*not found", "create the claim in the namespace, or change targets.kubeflow.volumes"),
    (
        r"Multi-Attach error",
        "a ReadWriteOnce volume works on one machine only: write a ReadWriteMany claim in targets.kubeflow.volumes",
    ),
    (r"secret .*not found|in Secret ", "create it in the namespace, or change targets.kubeflow.secrets"),
    (
        r"runAsNonRoot",
        "give the image a USER that is a number and not 0, or write run_as_non_root: false in "
        "targets.kubeflow.security_context",
    ),
    (r"executable file not found|No module named 'tfx_distribute'", _NO_PACKAGE),
    (r"OOMKilled", "write more memory for this component in resources, or a smaller per_replica_batch_size"),
)


def find_remedy(words: str) -> str:
    """Returns what to write or do instead; empty if the words are not known."""
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, words)), "")


def with_remedy(words: str) -> str:
    """Returns Kubernetes' words, followed by the remedy if there is one."""
    remedy = find_remedy(words)
    return f"{words}; {remedy}" if remedy else words


def is_final(words: str) -> bool:
    """Returns True for a reason that no waiting ends, only a person."""
    return bool(_FINAL.search(words))


def find_wait(workloads: Sequence[Mapping[str, Any]]) -> str:
    """Returns Kueue's words about what a job waits for; empty if it has none."""
    words = []
    for workload in workloads:
        status = workload.get("status") or {}
        for condition in status.get("conditions") or ():
            is_waiting = {"QuotaReserved": "False", "Evicted": "True", "Finished": "True"}.get(condition["type"])
            if condition["status"] == is_waiting:
                words.append(str(condition.get("message", "")))
        checks = (check for check in status.get("admissionChecks") or () if check.get("state") != "Ready")
        words += [f"admission check {each['name']} is {each['state']}: {each.get('message', '')}" for each in checks]
    return "; ".join(dict.fromkeys(filter(None, words)))
