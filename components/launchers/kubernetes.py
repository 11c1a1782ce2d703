"""The TFJob launcher: creates a training cluster on Kubernetes, follows it, and removes it if it is not to go on."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers import tfjob
from tfx_distribute.components.launchers.pod_log import PodLog
from tfx_distribute.components.launchers.termination import terminable
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 600.0  # without an answer of the API server; training goes on meanwhile
LAST_LINES = 20

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_JOB_LABEL = "training.kubeflow.org/job-name"

T = TypeVar("T")


def owner() -> tfjob.Owner | None:
    """The pod that this step runs in, as Kubeflow Pipelines tells it; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return tfjob.Owner(name, uid) if name and uid else None


def run(manifest: dict[str, Any], max_restarts: int) -> None:
    """Has a TFJob train, to its end.

    One of the same name that goes on already, from an earlier try of this step, is followed.

    Args:
      manifest: The TFJob.
      max_restarts: How often its cluster may start again.

    Raises:
      ConfigurationError: It cannot be created.
      TrainingError: It failed, or is gone; the message has the last lines of the pod that failed.
    """
    config.load_config()
    jobs = _Jobs(manifest["metadata"]["name"], _namespace())
    with terminable():
        jobs.create(manifest)
        try:
            _follow(jobs, max_restarts)
        except TrainingError:
            raise  # it has ended, and stays for people to look at
        except BaseException:
            logging.info("removing TFJob %s", jobs.name)
            jobs.delete()
            raise


class _Jobs:
    """Requests about one TFJob.

    Attributes:
      name: Its name.
      namespace: Its namespace.
    """

    def __init__(self, name: str, namespace: str):
        self.name, self.namespace = name, namespace
        self._custom, self._core = client.CustomObjectsApi(), client.CoreV1Api()
        self._which = {"group": tfjob.GROUP, "version": tfjob.VERSION, "plural": tfjob.PLURAL, "namespace": namespace}

    def create(self, manifest: dict[str, Any]) -> None:
        """Creates it, unless it is there and goes on."""
        try:
            _patiently(lambda: self._custom.create_namespaced_custom_object(body=manifest, **self._which))
            logging.info("created TFJob %s in namespace %s", self.name, self.namespace)
        except ApiException as error:
            if error.status != 409:
                raise _explained(error, self.name, self.namespace) from error
            found = self.get()
            if _condition(found) != "Failed":
                logging.info("TFJob %s goes on already; following it", self.name)
                return
            logging.info("TFJob %s of an earlier try has failed; creating it anew", self.name)
            self.delete()
            self._wait_until_gone()
            self.create(manifest)

    def get(self) -> dict[str, Any]:
        """What the cluster knows of it."""
        try:
            found: dict[str, Any] = _patiently(
                lambda: self._custom.get_namespaced_custom_object(name=self.name, **self._which)
            )
        except ApiException as error:
            if error.status == 404:
                raise TrainingError(f"TFJob {self.name} is gone: somebody has deleted it while it was training") from error
            raise _explained(error, self.name, self.namespace) from error
        return found

    def delete(self) -> None:
        """Removes it and its pods."""
        # One try: whoever is told to end has no time. The pod that owns it takes it along in any case.
        with contextlib.suppress(ApiException, urllib3.exceptions.HTTPError):
            self._custom.delete_namespaced_custom_object(name=self.name, propagation_policy="Background", **self._which)

    def pods(self) -> list[client.V1Pod]:
        """Its pods."""
        selector = f"{_JOB_LABEL}={self.name}"
        try:
            return list(_patiently(lambda: self._core.list_namespaced_pod(self.namespace, label_selector=selector)).items)
        except ApiException as error:
            raise _explained(error, self.name, self.namespace) from error

    def last_lines(self, pod: str) -> list[str]:
        """The last that a pod printed."""
        try:
            text = self._core.read_namespaced_pod_log(pod, self.namespace, container=tfjob.CONTAINER, tail_lines=LAST_LINES)
        except (ApiException, urllib3.exceptions.HTTPError):
            return []
        return str(text).rstrip().splitlines()

    def _wait_until_gone(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(TrainingError):  # it is gone
            while time.monotonic() < deadline:
                self.get()
                time.sleep(POLL_SECONDS)


@dataclass
class _Seen:
    """What was told of a TFJob so far."""

    state: str = ""
    restarts: set[str] = field(default_factory=set)


def _follow(jobs: _Jobs, max_restarts: int) -> None:
    seen = _Seen()
    with PodLog(jobs.namespace, f"{_JOB_LABEL}={jobs.name},training.kubeflow.org/replica-type=chief") as log:
        while True:
            job = jobs.get()
            state = _state(job)
            if state != seen.state:
                logging.info("TFJob %s: %s", jobs.name, state)
                seen.state = state
            condition = _condition(job)
            if condition == "Succeeded":
                log.finish()
                return
            if condition == "Failed":
                log.finish()
                raise TrainingError(_why(job, jobs))
            if condition == "Restarting":
                seen.restarts.add(_latest(job)["lastTransitionTime"])
                if len(seen.restarts) > max_restarts:
                    why = _why(job, jobs)
                    jobs.delete()
                    raise TrainingError(f"{why}\nAll {max_restarts} restarts (max_restarts) are used up")
            time.sleep(POLL_SECONDS)


def _latest(job: dict[str, Any]) -> dict[str, Any]:
    """The condition that holds and came last; the operator leaves those before it."""
    holding = [found for found in job.get("status", {}).get("conditions") or () if found["status"] == "True"]
    ended = [found for found in holding if found["type"] in ("Succeeded", "Failed")]
    return (ended or holding or [{"type": "Created"}])[-1]


def _condition(job: dict[str, Any]) -> str:
    return str(_latest(job)["type"])


def _state(job: dict[str, Any]) -> str:
    """The state of a TFJob and of its replicas, in words."""
    replicas = []
    for kind, counts in sorted((job.get("status", {}).get("replicaStatuses") or {}).items()):
        told = [f"{counts[name]} {name}" for name in ("active", "succeeded", "failed") if counts.get(name)]
        if told:
            replicas.append(f"{kind} {', '.join(told)}")
    condition = _condition(job)
    words = "Suspended: it waits to be admitted" if condition == "Suspended" else condition
    return "; ".join([words, *replicas])


def _why(job: dict[str, Any], jobs: _Jobs) -> str:
    """Why a TFJob failed: what the operator says, and what the pods that failed first said last."""
    latest = _latest(job)
    lines = [f"TFJob {jobs.name} failed: {latest.get('message') or latest.get('reason') or 'no reason is given'}"]
    failed = sorted((_Ended.of(pod) for pod in jobs.pods()), key=lambda ended: ended.at)
    for ended in [ended for ended in failed if ended.how][:1]:
        lines.append(f"pod {ended.name} {ended.how}")
        lines += [f"  {line}" for line in jobs.last_lines(ended.name)]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Ended:
    """A pod that may have failed.

    Attributes:
      name: Its name.
      how: In which way; empty where it has not.
      at: When, seconds since 1970.
    """

    name: str
    how: str = ""
    at: float = float("inf")

    @staticmethod
    def of(pod: client.V1Pod) -> "_Ended":
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return _Ended(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        for status in pod.status.container_statuses or ():
            ended = (status.state and status.state.terminated) or (status.last_state and status.last_state.terminated)
            if ended and ended.exit_code:
                at = ended.finished_at.timestamp() if ended.finished_at else 0.0
                return _Ended(name, f"ended with exit code {ended.exit_code} ({ended.reason or 'Error'})", at)
            waiting = status.state and status.state.waiting
            if waiting and waiting.reason in ("ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"):
                return _Ended(name, f"cannot start ({waiting.reason}: {waiting.message or ''})", 0.0)
        return _Ended(name)


def _patiently(request: Callable[[], T]) -> T:
    """Sends a request; again and again, where the API server cannot be reached or cannot answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return request()
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            passing = not isinstance(error, ApiException) or not error.status or error.status == 429 or error.status >= 500
            if not passing:
                raise
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"the Kubernetes API server did not answer for {PATIENCE_SECONDS:g} s; the last error: {error}"
                ) from error
            if not told:
                logging.warning("the Kubernetes API server does not answer, trying again: %s", error)
                told = True
            time.sleep(POLL_SECONDS)


def _explained(error: ApiException, name: str, namespace: str) -> ConfigurationError:
    """What an answer means to a person."""
    told = _message(error)
    if error.status == 403:
        return ConfigurationError(
            f"the service account of this step may not run a TFJob in namespace {namespace} ({told}); apply what "
            "`tfx-distribute manifests` prints, or name another targets.kubeflow.service_account"
        )
    if error.status == 404:
        return ConfigurationError(
            f"the cluster knows no TFJob ({told}); install Kubeflow's Training Operator 1.9, or write "
            "targets.kubeflow.training: step"
        )
    return ConfigurationError(f"the cluster refuses TFJob {name}: {told}")


def _message(error: ApiException) -> str:
    import json

    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"


def _namespace() -> str:
    """The namespace of this pod, where the TFJob has to be too; outside of a cluster, that of kubectl's context."""
    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    _, active = config.list_kube_config_contexts()
    return str(active["context"].get("namespace", "default"))
