"""Launches a training cluster in pods of Kubernetes.

Creates the job, follows it until it ends, and deletes it if it must not continue.
"""

import base64
import copy
import json
import os
from pathlib import Path
from typing import Any

from absl import logging
from kubernetes import config

from tfx_distribute.components.launchers.kubernetes import connection
from tfx_distribute.components.launchers.kubernetes.client import JobClient, has_kind
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind, Owner
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL
from tfx_distribute.components.launchers.kubernetes.watcher import FailedError, Limits, Watcher
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.trainer_module.errors import ConfigurationError

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TOKEN_FILE = _NAMESPACE_FILE.with_name("token")
_ACCOUNT = "system:serviceaccount:"  # prefix of `NAMESPACE:NAME` in a token


def find_kind(training: str) -> JobKind:
    """Returns the kind of job that trains.

    Args:
      training: A kind of job, or any other value for the first that the cluster has.

    Raises:
      ConfigurationError: The cluster has none.
    """
    if training in JOB_KINDS:
        return JOB_KINDS[training]
    connection.load_config()
    for kind in JOB_KINDS.values():
        if has_kind(kind):
            logging.info("training: %s: the cluster has %ss, one of which trains", training, kind.title)
            return kind
    names = " nor ".join(f"{kind.title}s" for kind in JOB_KINDS.values())
    remedies = ", or ".join(kind.install for kind in reversed(JOB_KINDS.values()))
    raise ConfigurationError(f"the cluster has neither {names}; {remedies}, or write targets.kubeflow.training: step")


def launch(kind: JobKind, manifest: dict[str, Any], limits: Limits, *, has_result: bool = False) -> None:
    """Trains in the pods of a job, and returns when it has succeeded.

    A job of the same name comes from an earlier attempt of this step. If it is still
    running, it is followed; if it has ended, another one replaces it.

    Args:
      kind: Kind of the job.
      manifest: Its manifest. Pods whose templates name no service account or no user
        get those of this step.
      limits: How long, and how often, it is tried.
      has_result: True if an earlier attempt has left the result. Then no job is
        created; only one that is still running is followed.

    Raises:
      ConfigurationError: The job cannot be created.
      TrainingError: The job failed or was deleted, or its pods are refused or cannot
        start; the message has the last lines of the pod that failed, or the cluster's
        reason.
    """
    connection.load_config()
    account = service_account()
    if account:
        manifest = as_step(kind, manifest, account, os.getuid(), os.getgid())
    jobs = JobClient(kind, manifest["metadata"]["name"], _namespace())
    jobs.check_permissions()
    queue = manifest["metadata"]["labels"].get(QUEUE_LABEL)
    if queue:
        jobs.check_queue(queue)
    with terminable():
        watcher = Watcher(jobs, manifest, limits)
        try:
            if watcher.start(has_result):
                watcher.follow()
        except FailedError:
            raise  # the job has ended, and stays for people to look at
        except BaseException as error:
            watcher.remove(has_time=isinstance(error, Exception))  # a signal gives little
            raise


def owner() -> Owner | None:
    """Returns this step's pod, from Kubeflow Pipelines' variables; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return Owner(name, uid) if name and uid else None


def service_account() -> str | None:
    """Returns the name of this step's service account; None outside a cluster."""
    try:
        _, claims, _ = _TOKEN_FILE.read_text(encoding="utf-8").split(".")
        # A JWT leaves out the padding. Its signature is not checked: nobody gets access
        # by what it says here.
        subject = str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])
    except (OSError, ValueError, KeyError):
        return None
    return subject.rpartition(":")[2] if subject.startswith(_ACCOUNT) else None


def as_step(kind: JobKind, manifest: dict[str, Any], account: str, user: int, group: int) -> dict[str, Any]:
    """Returns the manifest with the rights of this step for all pods.

    With another service account they may reach neither data nor images, and as another
    user not the files that step and pods exchange.

    Args:
      kind: Kind of the job.
      manifest: Its manifest. Values that its templates have stay.
      account: Service account of this step.
      user: Its user; pods are not made root, their images decide about that.
      group: Its group.

    Raises:
      ConfigurationError: This step runs as root, and the pods must not.
    """
    manifest = copy.deepcopy(manifest)
    for template in kind.pod_templates(manifest):
        pod = template["spec"]
        pod.setdefault("serviceAccountName", account)
        context = pod.get("securityContext", {})
        if "runAsUser" in context:
            continue
        if user:
            pod["securityContext"] = {"runAsUser": user, "runAsGroup": group, **context}
        elif context.get("runAsNonRoot"):
            raise ConfigurationError(
                "targets.kubeflow.security_context: this step runs as root, and pods of a training must not; give the image "
                "a USER that is a number and not 0, as tfx-distribute's Dockerfile does, or write run_as_non_root: false"
            )
    return manifest


def _namespace() -> str:
    """Returns this pod's namespace, where the job has to be too.

    Outside a cluster, returns that of kubectl's current context.
    """
    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    _, active = config.list_kube_config_contexts()
    return str(active["context"].get("namespace", "default"))
