"""Launches a training cluster as a TFJob on Kubernetes.

Creates the TFJob, follows it until it ends, and deletes it if it must not continue.
"""

import base64
import contextlib
import copy
import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from absl import logging
from kubernetes import client, config

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.launchers.tfjob import status as tfjob_status
from tfx_distribute.components.launchers.tfjob.client import JOB_LABEL, TFJobClient
from tfx_distribute.components.launchers.tfjob.pod_log import PodLog
from tfx_distribute.components.launchers.tfjob.status import PodEnd, Start
from tfx_distribute.trainer_module.errors import TrainingError

POLL_SECONDS = 2.0
OUT_OF_TIME = "active longer than specified deadline"  # the operator's words
# How long a pod may fail to start: an image or a secret that is missing may still come.
START_SECONDS = 300.0

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TOKEN_FILE = _NAMESPACE_FILE.with_name("token")
_ACCOUNT = "system:serviceaccount:"  # prefix of `NAMESPACE:NAME` in a token


def launch(manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None = None, *, rerun: bool = False) -> None:
    """Trains in a TFJob, and returns when it has succeeded.

    A TFJob of the same name comes from an earlier attempt of this step. If it is still
    running, it is followed; if it has succeeded, nothing is left to do.

    Args:
      manifest: Manifest of the TFJob. Pods whose templates name no service account get
        that of this step.
      max_restarts: How many times the cluster may restart.
      deadline_seconds: Seconds that the TFJob may take after its start, or after it was
        last resumed; None for no limit.
      rerun: True to train again even if the TFJob has succeeded.

    Raises:
      ConfigurationError: The TFJob cannot be created.
      TrainingError: The TFJob failed or was deleted; the message has the last lines of
        the pod that failed.
    """
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    account = service_account()
    if account:  # the namespace's default account may reach neither data nor images
        manifest = with_service_account(manifest, account)
    jobs = TFJobClient(manifest["metadata"]["name"], _namespace())
    with terminable():
        watcher = _JobWatcher(jobs, manifest, max_restarts, deadline_seconds)
        try:
            if watcher.start(rerun):
                watcher.follow()
        except _FailedError:
            raise  # the TFJob has ended, and stays for people to look at
        except BaseException:
            logging.info("removing TFJob %s", jobs.name)
            jobs.delete()
            raise


def owner() -> tfjob_manifest.Owner | None:
    """Returns this step's pod, from Kubeflow Pipelines' variables; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return tfjob_manifest.Owner(name, uid) if name and uid else None


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


def with_service_account(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the manifest with a service account for all pods that name none."""
    manifest = copy.deepcopy(manifest)
    for replica in manifest["spec"]["tfReplicaSpecs"].values():
        replica["template"]["spec"].setdefault("serviceAccountName", name)
    return manifest


class _FailedError(TrainingError):
    """The TFJob has ended without success."""


class _JobWatcher:
    """Starts a TFJob and follows it until it ends.

    Args:
      jobs: Client of the TFJob.
      manifest: Manifest to create the TFJob from.
      max_restarts: How many times the cluster may restart.
      deadline_seconds: Seconds that the TFJob may take after its start, or after it was
        last resumed; None for no limit.
    """

    def __init__(self, jobs: TFJobClient, manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None):
        self._jobs = jobs
        self._manifest = manifest
        self._max_restarts = max_restarts
        self._deadline_seconds = deadline_seconds
        selector = f"{JOB_LABEL}={jobs.name},training.kubeflow.org/replica-type=chief"
        self._log = PodLog(jobs.namespace, selector)
        self._logged_state = ""
        self._start = Start()
        self._start_seen = 0.0  # by our own clock, from which the cluster's may differ
        self._pods: dict[str, set[str]] = {}  # name -> uids: a pod created again has a new one
        self._earlier_restarts: Counter[str] = Counter()  # name -> restarts before the last suspension
        self._ignored: set[str] = set()  # uids of pods from before the last suspension
        self._waiting: dict[str, str] = {}  # uid -> the reason for waiting logged last
        self._stuck: dict[str, float] = {}  # uid -> since when the pod cannot start
        self._failed_pods: dict[str, PodEnd] = {}  # uid -> how the pod failed

    def start(self, rerun: bool) -> bool:
        """Creates the TFJob, or takes over that of an earlier attempt.

        Args:
          rerun: True to train again even if the TFJob has succeeded.

        Returns:
          True if there is a TFJob to follow, False if it has succeeded already.
        """
        if self._jobs.create(self._manifest):
            logging.info("created TFJob %s in namespace %s", self._jobs.name, self._jobs.namespace)
            return True
        job = self._jobs.get()
        condition = tfjob_status.condition_type(job)
        if condition == "Succeeded" and not rerun:
            logging.info("TFJob %s of an earlier attempt has succeeded", self._jobs.name)
            return False
        if "deletionTimestamp" in job["metadata"] or condition in ("Failed", "Succeeded"):
            logging.info("TFJob %s of an earlier attempt has ended; creating it again", self._jobs.name)
            self._replace()
            return True
        # The pod of the earlier attempt owns it, and would take it along when it is
        # deleted.
        self._jobs.set_owners(self._manifest["metadata"].get("ownerReferences", []))
        logging.info("TFJob %s of an earlier attempt is still running; following it", self._jobs.name)
        return True

    def follow(self) -> None:
        """Returns when the TFJob has succeeded.

        Raises:
          TrainingError: The TFJob failed, was deleted, or takes too long.
        """
        with self._log as log:
            while True:
                job = self._jobs.get()
                self._log_state(job)
                self._observe_start(job)
                condition = tfjob_status.condition_type(job)
                if condition == "Succeeded":
                    log.finish()
                    return
                if condition == "Failed":
                    self._restart_or_fail(job)
                if condition != "Suspended":  # then the pods are old ones, which are being removed
                    for pod in self._jobs.list_pods():
                        self._observe(pod)
                if self._restarts() > self._max_restarts:
                    raise TrainingError(f"{self._why(job)}\n{self._restarts_used_up()}")
                if self._is_late():
                    # The operator checks the time only when the job changes otherwise.
                    raise TrainingError(f"TFJob {self._jobs.name} takes longer than active_deadline_seconds")
                time.sleep(POLL_SECONDS)

    def _replace(self) -> None:
        """Deletes the TFJob, waits until it is gone, and creates it again."""
        self._jobs.delete()
        deadline = time.monotonic() + retry.TIMEOUT_SECONDS
        with contextlib.suppress(TrainingError):  # raised when it is gone
            while time.monotonic() < deadline:
                self._jobs.get()
                time.sleep(POLL_SECONDS)
        self.start(rerun=False)

    def _restart_or_fail(self, job: dict[str, Any]) -> None:
        """Creates a failed TFJob again if all its pods were only taken away.

        The operator gives up the whole job in that case.
        """
        for pod in self._jobs.list_pods():
            self._observe(pod)
        why = self._why(job)
        message = tfjob_status.latest_condition(job).get("message", "")
        if any(end.is_final for end in self._failed_pods.values()) or OUT_OF_TIME in message:
            self._log.finish()
            raise _FailedError(why)
        if self._restarts() >= self._max_restarts:
            self._log.finish()
            raise _FailedError(f"{why}\n{self._restarts_used_up()}")
        logging.warning("%s; starting it again from its last save", why.splitlines()[0])
        self._failed_pods.clear()  # these failures and this start belong to the old TFJob
        self._start = Start()
        self._replace()

    def _observe_start(self, job: dict[str, Any]) -> None:
        """Notes when the operator started the TFJob, also after a suspension."""
        start = Start.of(job)
        if start == self._start:
            return
        if start.uid == self._start.uid and self._start.time:
            # Pods that are created after a suspension do not count as restarts.
            for name, uids in self._pods.items():
                self._earlier_restarts[name] += len(uids) - 1
                self._ignored |= uids
            self._pods.clear()
            self._failed_pods.clear()
        self._start, self._start_seen = start, time.monotonic()

    def _observe(self, pod: client.V1Pod) -> None:
        """Notes the state of a pod. A failed pod is soon deleted, with its log."""
        uid = pod.metadata.uid
        if uid in self._ignored:
            return
        self._pods.setdefault(pod.metadata.name, set()).add(uid)
        waits = tfjob_status.waits_for_machine(pod)
        if waits and self._waiting.get(uid) != waits:
            self._waiting[uid] = waits
            logging.info("pod %s %s", pod.metadata.name, waits)
        cannot_start = tfjob_status.cannot_start(pod)
        if cannot_start and time.monotonic() - self._stuck.setdefault(uid, time.monotonic()) > START_SECONDS:
            raise TrainingError(f"TFJob {self._jobs.name}: pod {pod.metadata.name} {cannot_start}")
        end = PodEnd.of(pod)
        if end.how and uid not in self._failed_pods:
            self._failed_pods[uid] = replace(end, last_lines=tuple(self._jobs.last_lines(end.name)))
            logging.warning("pod %s %s", end.name, end.how)

    def _is_late(self) -> bool:
        """Returns True if the TFJob has run for longer than its deadline."""
        if not self._deadline_seconds or not self._start.time:  # waiting in a queue does not count
            return False
        return time.monotonic() - self._start_seen > self._deadline_seconds

    def _restarts(self) -> int:
        """Returns how many times the cluster has restarted.

        Each of its processes that lost a peer has restarted then, so the counts of pods
        do not add up.
        """
        return max([self._earlier_restarts[name] + len(uids) - 1 for name, uids in self._pods.items()], default=0)

    def _why(self, job: dict[str, Any]) -> str:
        """Describes why the TFJob failed.

        Has the operator's reason, and the last lines of the pod that failed first.
        """
        latest = tfjob_status.latest_condition(job)
        lines = [f"TFJob {self._jobs.name} failed: {latest.get('message') or latest.get('reason') or 'no reason is given'}"]
        candidates = [end for end in self._failed_pods.values() if end.is_final] or list(self._failed_pods.values())[-1:]
        for end in sorted(candidates, key=lambda end: end.at)[:1]:
            lines.append(f"pod {end.name} {end.how}")
            lines += [f"  {line}" for line in end.last_lines]
        # The operator may have removed the pods before we could see them.
        if not candidates and self._log.last_lines:
            lines += ["the last lines of the chief:", *(f"  {line}" for line in self._log.last_lines)]
        return "\n".join(lines)

    def _restarts_used_up(self) -> str:
        return f"All {self._max_restarts} restarts (max_restarts) are used up"

    def _log_state(self, job: dict[str, Any]) -> None:
        """Logs the state of the TFJob if it has changed."""
        state = tfjob_status.describe(job)
        if state != self._logged_state:
            logging.info("TFJob %s: %s", self._jobs.name, state)
            self._logged_state = state


def _namespace() -> str:
    """Returns this pod's namespace, where the TFJob has to be too.

    Outside a cluster, returns that of kubectl's current context.
    """
    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    _, active = config.list_kube_config_contexts()
    return str(active["context"].get("namespace", "default"))
