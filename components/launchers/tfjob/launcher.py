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
from tfx_distribute.components.launchers.tfjob import refusals, remedies
from tfx_distribute.components.launchers.tfjob import status as tfjob_status
from tfx_distribute.components.launchers.tfjob.client import JOB_LABEL, TFJobClient
from tfx_distribute.components.launchers.tfjob.pod_log import PodLog
from tfx_distribute.components.launchers.tfjob.status import PodEnd, Start
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 2.0
EVENTS_SECONDS = 5.0  # between two looks at the events of a pod that starts
OUT_OF_TIME = "active longer than specified deadline"  # the operator's words
# How long a pod may fail to start: an image or a secret that is missing may still come.
START_SECONDS = 300.0
OPERATOR_SECONDS = 45.0  # for the operator to show that it has seen a TFJob

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TOKEN_FILE = _NAMESPACE_FILE.with_name("token")
_ACCOUNT = "system:serviceaccount:"  # prefix of `NAMESPACE:NAME` in a token


def launch(
    manifest: dict[str, Any],
    max_restarts: int,
    deadline_seconds: int | None = None,
    *,
    quota_timeout_seconds: float = 3600.0,
    rerun: bool = False,
) -> None:
    """Trains in a TFJob, and returns when it has succeeded.

    A TFJob of the same name comes from an earlier attempt of this step. If it is still
    running, it is followed; if it has succeeded, nothing is left to do.

    Args:
      manifest: Manifest of the TFJob. Pods whose templates name no service account or
        no user get those of this step.
      max_restarts: How many times the cluster may restart.
      deadline_seconds: Seconds that the TFJob may take after its start, or after it was
        last resumed; None for no limit.
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
      rerun: True to train again even if the TFJob has succeeded.

    Raises:
      ConfigurationError: The TFJob cannot be created.
      TrainingError: The TFJob failed or was deleted, or its pods are refused or cannot
        start; the message has the last lines of the pod that failed, or the cluster's
        reason.
    """
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    account = service_account()
    if account:
        manifest = as_step(manifest, account, os.getuid(), os.getgid())
    jobs = TFJobClient(manifest["metadata"]["name"], _namespace())
    jobs.check_permissions()
    with terminable():
        watcher = _JobWatcher(jobs, manifest, max_restarts, deadline_seconds, quota_timeout_seconds)
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


def as_step(manifest: dict[str, Any], account: str, user: int, group: int) -> dict[str, Any]:
    """Returns the manifest with the rights of this step for all pods.

    With another service account they may reach neither data nor images, and as another
    user not the files that step and pods exchange.

    Args:
      manifest: Manifest of the TFJob. What its templates say stays.
      account: Service account of this step.
      user: Its user; pods are not made root, their images decide about that.
      group: Its group.

    Raises:
      ConfigurationError: This step runs as root, and the pods must not.
    """
    manifest = copy.deepcopy(manifest)
    for replica in manifest["spec"]["tfReplicaSpecs"].values():
        pod = replica["template"]["spec"]
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
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
    """

    def __init__(
        self,
        jobs: TFJobClient,
        manifest: dict[str, Any],
        max_restarts: int,
        deadline_seconds: int | None,
        quota_timeout_seconds: float,
    ):
        self._jobs = jobs
        self._manifest = manifest
        self._max_restarts = max_restarts
        self._deadline_seconds = deadline_seconds
        self._quota_timeout_seconds = quota_timeout_seconds
        selector = f"{JOB_LABEL}={jobs.name},training.kubeflow.org/replica-type=chief"
        self._log = PodLog(jobs.namespace, selector)
        self._logged_state = ""
        self._start = Start()
        self._start_seen = 0.0  # by our own clock, from which the cluster's may differ
        self._pods: dict[str, set[str]] = {}  # name -> uids: a pod created again has a new one
        self._earlier_restarts: Counter[str] = Counter()  # name -> restarts before the last suspension
        self._ignored: set[str] = set()  # uids of pods from before the last suspension
        self._logged: set[str] = set()  # reasons for waiting
        self._missing: frozenset[str] = frozenset()  # names of pods that do not exist
        self._missing_since = 0.0
        self._refused_since = 0.0  # 0 if no missing pod is known to be refused
        self._events_read: dict[str, float] = {}  # pod's uid -> when its events were last read
        self._mount_failures: dict[str, str] = {}  # pod's uid -> why its volumes are not there
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
                pods = self._jobs.list_pods()
                if condition != "Suspended":  # then the pods are old ones, which are being removed
                    for pod in pods:
                        self._observe(pod)
                if self._observe_missing(job, pods):
                    log.finish()
                    return
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
        self._observe_start_of(pod)
        end = PodEnd.of(pod)
        if end.how and uid not in self._failed_pods:
            self._failed_pods[uid] = replace(end, last_lines=tuple(self._jobs.last_lines(end.name)))
            logging.warning("pod %s %s", end.name, end.how)

    def _observe_start_of(self, pod: client.V1Pod) -> None:
        """Logs what a pod waits for, and gives up one that cannot start.

        Raises:
          TrainingError: The pod could not start for `START_SECONDS`.
        """
        uid, name = pod.metadata.uid, pod.metadata.name
        mount_failure = self._find_mount_failure(pod)
        problem = tfjob_status.cannot_start(pod) or (mount_failure if refusals.will_not_pass(mount_failure) else "")
        if not problem:
            self._stuck.pop(uid, None)
            waits = tfjob_status.waits_for_machine(pod) or mount_failure
            if waits:
                self._log_once(f"pod {name} {waits}")
            return
        words = remedies.with_remedy(f"pod {name} {problem}")
        self._log_once(words)
        if time.monotonic() - self._stuck.setdefault(uid, time.monotonic()) > START_SECONDS:
            raise TrainingError(f"TFJob {self._jobs.name}: {words}")

    def _find_mount_failure(self, pod: client.V1Pod) -> str:
        """Describes why a pod's volumes cannot be mounted, which only events say."""
        uid, now = pod.metadata.uid, time.monotonic()
        if not tfjob_status.is_being_made(pod):
            return ""
        if now - self._events_read.get(uid, -EVENTS_SECONDS) >= EVENTS_SECONDS:
            self._events_read[uid] = now
            self._mount_failures[uid] = refusals.find_mount_failure(self._jobs.list_events(uid) or ())
        failure = self._mount_failures[uid]
        return f"cannot start (FailedMount: {failure})" if failure else ""

    def _observe_missing(self, job: dict[str, Any], pods: list[client.V1Pod]) -> bool:
        """Logs why pods or their names do not exist, and gives up if they are refused.

        Returns:
          True if the chief has succeeded although pods are refused. As long as one is,
          the operator does not look at the others.

        Raises:
          TrainingError: They have been refused for too long, the operator does not
            create them, or another pod has failed for good.
        """
        suspended = tfjob_status.is_suspended(job)
        missing = frozenset() if suspended else refusals.missing_pods(job, pods)
        now = time.monotonic()
        if missing != self._missing:
            self._missing, self._missing_since, self._refused_since = missing, now, 0.0
        if suspended or (not missing and (job.get("status") or {}).get("startTime")):
            return False
        events = self._jobs.list_events(job["metadata"]["uid"])
        refusal = refusals.find_refusal(job, pods, events or ())
        if refusal:
            words = f"TFJob {self._jobs.name}: the cluster refuses its pods: {remedies.with_remedy(refusal)}"
            self._log_once(words)
            self._refused_since = self._refused_since or now
            if any(end.is_final for end in self._failed_pods.values()):
                raise TrainingError(self._why(job))
            chief = tfjob_status.chief_phase(job, pods)
            if chief == "Succeeded":
                return True
            if chief == "Running" and missing and not refusals.needed(job, missing):
                return False
            if now - self._refused_since > refusals.patience(refusal, self._quota_timeout_seconds):
                raise TrainingError(words)
        elif not (events or pods or job.get("status")) and now - self._missing_since > OPERATOR_SECONDS:
            words = (
                f"TFJob {self._jobs.name} has no pods after {OPERATOR_SECONDS:g} s, and no event says why; see whether the "
                "pods of Kubeflow's Training Operator run, usually in namespace kubeflow"
            )
            self._log_once(words)
            # Otherwise we may not read why pods are refused, or a gang scheduler holds
            # them back.
            if events is not None and "schedulingPolicy" not in job["spec"]["runPolicy"]:
                raise TrainingError(words)
        return False

    def _log_once(self, words: str) -> None:
        """Logs why the training does not start, unless that is known already."""
        if words not in self._logged:
            self._logged.add(words)
            logging.warning("%s", words)

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
            remedy = remedies.find_remedy(end.how) or remedies.find_remedy_for_output(end.last_lines)
            if remedy:
                lines.append(remedy)
        # The operator may have removed the pods before we could see them.
        if not candidates:
            lines += self._failed_starts()
        if not candidates and self._log.last_lines:
            lines += ["the last lines of the chief:", *(f"  {line}" for line in self._log.last_lines)]
        return "\n".join(lines)

    def _failed_starts(self) -> list[str]:
        """Describes why pods that are gone could not start: their events stay."""
        uids = [uid for uids in self._pods.values() for uid in uids]
        failures = (refusals.find_failed_start(self._jobs.list_events(uid) or ()) for uid in uids)
        return [remedies.with_remedy(failure) for failure in failures if failure][-1:]

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
