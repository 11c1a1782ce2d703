"""The TFJob launcher: creates a training cluster on Kubernetes, follows it, and removes it if it is not to go on."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from absl import logging
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from tfx_distribute.components.launchers import tfjob
from tfx_distribute.components.launchers.pod_log import LAST_LINES, PodLog
from tfx_distribute.components.launchers.termination import terminable
from tfx_distribute.trainer_module import exit_codes
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 600.0  # without an answer of the API server; training goes on meanwhile
START_SECONDS = 300.0  # a pod may fail to start, for want of an image or a secret, which may yet come

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_JOB_LABEL = "training.kubeflow.org/job-name"

T = TypeVar("T")


def owner() -> tfjob.Owner | None:
    """The pod that this step runs in, as Kubeflow Pipelines tells it; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return tfjob.Owner(name, uid) if name and uid else None


def run(manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None = None) -> None:
    """Has a TFJob train, to its end.

    One of the same name that goes on already, from an earlier try of this step, is followed.

    Args:
      manifest: The TFJob.
      max_restarts: How often its cluster may start again.
      deadline_seconds: Seconds that it may take.

    Raises:
      ConfigurationError: It cannot be created.
      TrainingError: It failed, or is gone; the message has the last lines of the pod that failed.
    """
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    jobs = _Jobs(manifest["metadata"]["name"], _namespace())
    with terminable():
        jobs.create(manifest)
        try:
            _Follower(jobs, manifest, max_restarts, deadline_seconds).follow()
        except _FailedError:
            raise  # it has ended, and stays for people to look at
        except BaseException:
            logging.info("removing TFJob %s", jobs.name)
            jobs.delete()
            raise


class _FailedError(TrainingError):
    """The TFJob has failed, and is over."""


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
            self.replace(manifest)

    def replace(self, manifest: dict[str, Any]) -> None:
        """Removes it, and creates it anew when it is gone."""
        self.delete()
        deadline = time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(TrainingError):  # it is gone
            while time.monotonic() < deadline:
                self.get()
                time.sleep(POLL_SECONDS)
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
            answer = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=tfjob.CONTAINER, tail_lines=LAST_LINES, _preload_content=False
            )
        except (ApiException, urllib3.exceptions.HTTPError):
            return []
        lines: list[str] = answer.data.decode(errors="replace").rstrip().splitlines()
        return lines


class _Follower:
    """Follows a TFJob to its end.

    Args:
      jobs: Requests about it.
      manifest: What it was made from.
      max_restarts: How often its cluster may start again.
      deadline_seconds: Seconds that it may take.
    """

    def __init__(self, jobs: _Jobs, manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None):
        self._jobs = jobs
        self._manifest = manifest
        self._max_restarts = max_restarts
        self._deadline = time.monotonic() + deadline_seconds if deadline_seconds else None
        selector = f"{_JOB_LABEL}={jobs.name},training.kubeflow.org/replica-type=chief"
        self._log = PodLog(jobs.namespace, selector)
        self._told = ""
        self._pods: dict[str, set[str]] = {}  # name -> uids: one that is made anew has another
        self._stuck: dict[str, float] = {}  # uid -> since when it cannot start
        self._ended: dict[str, _Ended] = {}  # uid -> how it ended, of the pods that failed

    def follow(self) -> None:
        """Returns when it has succeeded.

        Raises:
          TrainingError: It failed, is gone, or takes too long.
        """
        with self._log as log:
            while True:
                job = self._jobs.get()
                self._tell(job)
                condition = _condition(job)
                if condition == "Succeeded":
                    log.finish()
                    return
                if condition == "Failed":
                    self._failed(job)
                for pod in self._jobs.pods():
                    self._see(pod)
                if self._restarts() > self._max_restarts:
                    raise TrainingError(f"{self._why(job)}\n{self._used_up()}")
                if self._deadline and time.monotonic() > self._deadline:
                    # The operator looks at the clock only when something else happens to the job.
                    raise TrainingError(f"TFJob {self._jobs.name} takes longer than active_deadline_seconds")
                time.sleep(POLL_SECONDS)

    def _failed(self, job: dict[str, Any]) -> None:
        """Starts it again where its pods were only taken away, for which the operator gives up the whole job."""
        for pod in self._jobs.pods():
            self._see(pod)
        why = self._why(job)
        if any(ended.is_final for ended in self._ended.values()) or _latest(job).get("reason") == "DeadlineExceeded":
            self._log.finish()
            raise _FailedError(why)
        if self._restarts() >= self._max_restarts:
            self._log.finish()
            raise _FailedError(f"{why}\n{self._used_up()}")
        logging.warning("%s; starting it again from its last save", why.splitlines()[0])
        self._jobs.replace(self._manifest)

    def _see(self, pod: client.V1Pod) -> None:
        """Takes in how a pod is. One that failed is soon gone, with what it printed."""
        uid = pod.metadata.uid
        self._pods.setdefault(pod.metadata.name, set()).add(uid)
        cannot_start = _cannot_start(pod)
        if cannot_start and time.monotonic() - self._stuck.setdefault(uid, time.monotonic()) > START_SECONDS:
            raise TrainingError(f"TFJob {self._jobs.name}: pod {pod.metadata.name} {cannot_start}")
        ended = _Ended.of(pod)
        if ended.how and uid not in self._ended:
            self._ended[uid] = replace(ended, last_lines=tuple(self._jobs.last_lines(ended.name)))
            logging.warning("pod %s %s", ended.name, ended.how)

    def _why(self, job: dict[str, Any]) -> str:
        """Why the TFJob failed: what the operator says, and what the pod that failed first, of the last try, said last."""
        latest = _latest(job)
        lines = [f"TFJob {self._jobs.name} failed: {latest.get('message') or latest.get('reason') or 'no reason is given'}"]
        final = [ended for ended in self._ended.values() if ended.is_final] or list(self._ended.values())[-1:]
        for ended in sorted(final, key=lambda ended: ended.at)[:1]:
            lines.append(f"pod {ended.name} {ended.how}")
            lines += [f"  {line}" for line in ended.last_lines]
        if not final and self._log.last_lines:  # the operator was quicker to remove the pods than we to see them
            lines += ["the chief said last:", *(f"  {line}" for line in self._log.last_lines)]
        return "\n".join(lines)

    def _restarts(self) -> int:
        """How often the cluster started again: each process of it that lost a peer did."""
        return max([len(uids) - 1 for uids in self._pods.values()], default=0)

    def _used_up(self) -> str:
        return f"All {self._max_restarts} restarts (max_restarts) are used up"

    def _tell(self, job: dict[str, Any]) -> None:
        state = _state(job)
        if state != self._told:
            logging.info("TFJob %s: %s", self._jobs.name, state)
            self._told = state


def _latest(job: dict[str, Any]) -> dict[str, Any]:
    """The condition that holds and came last; the operator leaves those before it."""
    holding = [found for found in job.get("status", {}).get("conditions") or () if found["status"] == "True"]
    # Both, where the chief was done just when another process failed: there is a model.
    for last in ("Succeeded", "Failed"):
        for found in holding:
            if found["type"] == last:
                return dict(found)
    return dict((holding or [{"type": "Created"}])[-1])


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


@dataclass(frozen=True)
class _Ended:
    """A pod that may have failed.

    Attributes:
      name: Its name.
      how: In which way; empty where it has not.
      at: When, seconds since 1970.
      is_final: Whether another try would fail too.
      last_lines: What it printed last.
    """

    name: str
    how: str = ""
    at: float = float("inf")
    is_final: bool = False
    last_lines: tuple[str, ...] = ()

    @staticmethod
    def of(pod: client.V1Pod) -> "_Ended":
        name = pod.metadata.name
        if pod.status.reason:  # such as Evicted
            return _Ended(name, f"failed ({pod.status.reason}: {pod.status.message or ''})", 0.0)
        for status in pod.status.container_statuses or ():
            ended = (status.state and status.state.terminated) or (status.last_state and status.last_state.terminated)
            if ended and ended.exit_code:
                at = ended.finished_at.timestamp() if ended.finished_at else 0.0
                how = f"ended with exit code {ended.exit_code} ({ended.reason or 'Error'})"
                return _Ended(name, how, at, exit_codes.is_final(ended.exit_code))
        return _Ended(name)


def _cannot_start(pod: client.V1Pod) -> str:
    """Why a pod does not start that has found a node; empty where it does, or may yet."""
    for status in pod.status.container_statuses or ():
        waiting = status.state and status.state.waiting
        if waiting and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"cannot start ({waiting.reason}: {waiting.message or ''})"
    return ""


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
    if error.status == 403 and "admission webhook" not in told:  # by which the operator refuses what it is not made for
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
