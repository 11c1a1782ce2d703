"""Names the remedies for what Kubernetes says about pods that do not start.

Pure functions of Kubernetes' own words.
"""

import re
from collections.abc import Iterable

_IMAGE = "write another targets.kubeflow.image, or name the secret of its registry in image_pull_secrets"
_MACHINE = "write other cpu and memory for this component in resources"
_CREDENTIALS = "create it in the namespace, or change targets.kubeflow.secrets"
_NO_PACKAGE = (
    "the image lacks tfx-distribute: build it from the Dockerfile of tfx-distribute, or install the package in it, and "
    "write it as targets.kubeflow.image"
)
_ONE_OF_COUNT = r"exceeded quota: [^,]*, requested: count/\S+=1, used: count/\S+, limited: count/[^=]+=[1-9]"
# The first pattern that matches decides.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"failed quota: .*must specify", "write cpu and memory for this component in resources, which the quota counts"),
    (_ONE_OF_COUNT, "delete a job of the namespace that has ended, or wait until another ends and is deleted"),
    (r"exceeded quota", "ask for smaller or fewer machines in resources, or have the quota of the namespace raised"),
    (
        r"violates PodSecurity",
        "write what the namespace asks for in targets.kubeflow.security_context, or run in another namespace",
    ),
    (
        r"security context constraint",
        "write the namespace's own user and groups, or fs_group: null, in targets.kubeflow.security_context",
    ),
    (r"no PriorityClass", "create the class, or write another targets.kubeflow.gang_scheduling.priority_class"),
    (
        r"serviceaccount .*not found",
        "create it in the namespace, or name another targets.kubeflow.service_account",
    ),
    (r"(maximum|minimum) \S+ usage per|limit to request ratio", _MACHINE),
    (r"ErrImage|ImagePull|InvalidImageName|ImageInspectError|RegistryUnavailable", _IMAGE),
    (
        r"persistentvolumeclaim .*not found",
        "create the claim in the namespace, or change targets.kubeflow.volumes",
    ),
    (
        r"Multi-Attach error",
        "a ReadWriteOnce volume works on one machine only: write a ReadWriteMany claim in targets.kubeflow.volumes",
    ),
    (r"(configmap|ConfigMap) .*not found", "create it in the namespace"),
    (r"secret .*not found|in Secret ", _CREDENTIALS),
    (
        r"runAsNonRoot",
        "give the image a USER that is a number and not 0, or write run_as_non_root: false in "
        "targets.kubeflow.security_context",
    ),
    (r"executable file not found", _NO_PACKAGE),
    (r"OOMKilled", "write more memory for this component in resources, or a smaller per_replica_batch_size"),
    (
        r"Evicted.*ephemeral",
        "have it write less to its own disk, or have the namespace's limit of ephemeral-storage raised",
    ),
)


def find_remedy(words: str) -> str:
    """Returns what to write or do instead; empty if the words are not known."""
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, words)), "")


def find_remedy_for_output(lines: Iterable[str]) -> str:
    """Returns what to do about a program that could not start; empty if it could.

    Args:
      lines: The last lines that it printed.
    """
    return _NO_PACKAGE if any("No module named 'tfx_distribute'" in line for line in lines) else ""


def with_remedy(words: str) -> str:
    """Returns Kubernetes' words, followed by the remedy if there is one."""
    remedy = find_remedy(words)
    return f"{words}; {remedy}" if remedy else words
