"""Starts a job and follows it until it ends."""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from absl import logging
from kubernetes import client

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.kubernetes import refusals, remedies
from tfx_distribute.components.launchers.kubernetes.client import DELETE_SECONDS, JobClient
from tfx_distribute.components.launchers.kubernetes.job_kind import JobState, Start
from tfx_distribute.components.launchers.kubernetes.missing_pods import MissingPods
from tfx_distribute.components.launchers.kubernetes.pod_history import PodHistory
from tfx_distribute.components.launchers.kubernetes.pod_log import PodLog
from tfx_distribute.components.launchers.kubernetes.pod_rejections import PodRejections
from tfx_distribute.components.launchers.kubernetes.pod_restarts import PodRestarts
from tfx_distribute.components.launchers.kubernetes.pod_starts import PodStarts
from tfx_distribute.components.launchers.kubernetes.pods import PodEnd, describe_removal, find_initial, has_trained
from tfx_distribute.components.launchers.kubernetes.queue_wait import QueueWait
from tfx_distribute.components.launchers.kubernetes.settings import QUEUE_LABEL
from tfx_distribute.components.launchers.kubernetes.unseen_ends import UnseenEnds
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep

POLL_SECONDS = 2.0
MOST_GONE_PODS = 100  # to remember
# For the controller to see that a pod has failed for good. Where several fail at once,
# it may look at another one first, and restart.
FINAL_EXIT_SECONDS = 15.0
# Parts of the cluster's words that differ each time: ends of names that it makes up,
# ids of containers, and ports that it connects from.
_RANDOM = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b|\b[0-9a-f]{12,}\b|:\d+(?=->)")


@dataclass(frozen=True)
class Limits:
    """How long, and how often, a training is tried.

    Attributes:
      max_restarts: How many times in a row the cluster may restart without progress.
      deadline_seconds: Seconds that the job may take after its start, or after it was
        last resumed; None for no limit.
      quota_timeout_seconds: Seconds to wait while a quota refuses pods.
      read_step: Returns the training step of the newest saved state.
    """

    max_restarts: int
    deadline_seconds: int | None = None
    quota_timeout_seconds: float = 3600.0
    read_step: Callable[[], SavedStep] = SavedStep


class FailedError(TrainingError):
    """The job has ended without success, and stays for people to look at."""


class Watcher:
    """Starts a job and follows it until it ends.

    Args:
      jobs: Client of the job.
      manifest: Manifest to create the job from.
      limits: How long, and how often, it is tried.
    """

    def __init__(self, jobs: JobClient, manifest: dict[str, Any], limits: Limits):
        self._jobs, self._kind = jobs, jobs.kind
        self._manifest = manifest
        self._limits = limits
        self._log = PodLog(jobs.namespace, self._kind.chief_selector(jobs.name))
        self._said: set[str] = set()
        self._logged_state = ""
        owners = [owner["name"] for owner in manifest["metadata"].get("ownerReferences", ())]
        self._starts = PodStarts(jobs, owners, self._say_once)
        self._history = PodHistory(jobs)
        self._rejections = PodRejections(jobs, self._history, self._say_once)
        self._missing = MissingPods(jobs, self._history, limits.quota_timeout_seconds, self._say_once)
        self._unseen_ends = UnseenEnds(jobs, self._say_once)
        self._queue_wait = QueueWait(jobs, self._say_once)
        self._start = Start()
        self._start_seen = 0.0  # by our own clock, from which the cluster's may differ
        self._budget = RestartBudget(limits.max_restarts, limits.read_step)
        self._restarts = PodRestarts(jobs, self._history, self._budget)
        # uid -> as last seen, since the last suspension: those that are there, and the
        # last of those that are gone.
        self._pods: dict[str, client.V1Pod] = {}
        self._ignored: set[str] = set()  # uids of pods from before the last suspension
        self._removed_since: dict[str, float] = {}  # uid -> when it was first seen to be deleted
        self._failed_pods: dict[str, PodEnd] = {}  # uid -> how the pod failed
        self._failed_for_good_since = 0.0  # 0 if no pod has

    def start(self, has_result: bool) -> bool:
        """Creates the job, or takes over that of an earlier attempt.

        Args:
          has_result: True if an earlier attempt has left the result: no job is created.

        Returns:
          True if there is a job to follow.
        """
        if has_result:
            with contextlib.suppress(GoneError):
                return self._take_over()
            return False
        created = self._jobs.create(self._manifest)
        if created:
            logging.info("created %s in namespace %s", self._jobs, self._jobs.namespace)
            is_queued = QUEUE_LABEL in self._manifest["metadata"]["labels"]
            if is_queued and not self._kind.read_state(created).is_suspended:
                logging.warning(
                    "Kueue does not manage %ss in this cluster, so %s does not wait in its queue; have the kind added to "
                    "integrations.frameworks in the configuration of Kueue",
                    self._kind.title,
                    self._jobs,
                )
            return True
        if not self._take_over():
            logging.info("%s of an earlier attempt has ended; creating it again", self._jobs)
            self._replace()
        return True

    def _take_over(self) -> bool:
        """Becomes the owner of the job of an earlier attempt, if it is still running.

        Returns:
          True if there is a job to follow.

        Raises:
          GoneError: The job does not exist.
        """
        if self._has_ended(self._jobs.get()):
            return False
        # The pod of the earlier attempt owns it, and would take it along when it is
        # deleted.
        self._jobs.set_owners(self._manifest["metadata"].get("ownerReferences", []))
        logging.info("%s of an earlier attempt is still running; following it", self._jobs)
        return True

    def follow(self) -> None:
        """Returns when the job has succeeded.

        Raises:
          TrainingError: The job failed, was deleted, or takes too long.
        """
        with self._log as log:
            while True:
                job = self._jobs.get()
                seen = time.monotonic()
                if not self._is_own(job):
                    raise NotFollowedError(f"another attempt of this step follows {self._jobs} by now")
                state = self._kind.read_state(job)
                self._log_state(state)
                self._observe_start(state.start, seen)
                if state.phase == "succeeded":
                    log.finish()
                    return
                pods = self._jobs.list_pods()
                if state.phase == "failed":
                    if self._has_chief_succeeded(pods):
                        log.finish()
                        return
                    self._restart_or_fail(job, state, pods)
                    continue
                is_complete = self._kind.list_tasks(job) <= set(map(self._kind.task_of, pods))
                if self._unseen_ends.observe(state, pods, is_complete):
                    log.finish()
                    self.remove(has_time=True)
                    return
                if state.phase == "suspended":  # the pods are old ones, which are being removed
                    self._queue_wait.observe(job)
                else:
                    self._queue_wait.end()
                    self._observe_all(job, pods)
                if self._missing.observe(job, state, pods):
                    log.finish()
                    return
                self._check_limits(state, seen)
                time.sleep(POLL_SECONDS)

    def remove(self, has_time: bool) -> None:
        """Deletes the job, unless another attempt of this step follows it by now.

        Args:
          has_time: True to repeat requests that the API does not answer. A launcher
            that has to end sends each once; Kubernetes deletes the job with the pod
            that owns it in any case.
        """
        self._jobs.delete_if(self._is_own, DELETE_SECONDS if has_time else 0.0)

    def _is_own(self, job: Mapping[str, Any]) -> bool:
        """Returns False if the pod of another attempt owns a job."""
        own, current = (
            {owner["uid"] for owner in document["metadata"].get("ownerReferences", [])} for document in (self._manifest, job)
        )
        return own <= current

    def _has_ended(self, job: Mapping[str, Any]) -> bool:
        return "deletionTimestamp" in job["metadata"] or self._kind.read_state(job).phase in ("failed", "succeeded")

    def _replace(self) -> None:
        """Deletes a job that has ended, waits until it is gone, and creates it again.

        Raises:
          TrainingError: It is not gone after a long time.
        """
        self._jobs.delete_if(self._has_ended, retry.TIMEOUT_SECONDS)
        deadline = time.monotonic() + retry.TIMEOUT_SECONDS
        with contextlib.suppress(GoneError):
            while self._has_ended(self._jobs.get()):  # otherwise another attempt has created it
                left = [self._report_removal(pod) or f"pod {pod.metadata.name} exists" for pod in self._jobs.list_pods()]
                if time.monotonic() > deadline:
                    raise TrainingError(
                        f"{self._jobs} has ended, and cannot be created again: {retry.TIMEOUT_SECONDS:g} s after its "
                        f"deletion it is still there; {'; '.join(left) or 'see with `kubectl describe` what holds it'}"
                    )
                time.sleep(POLL_SECONDS)
        self.start(has_result=False)

    def _report_removal(self, pod: client.V1Pod) -> str:
        """Logs, and returns, why a pod is still there; empty if it may be."""
        if pod.metadata.deletion_timestamp is None:
            return ""
        since = self._removed_since.setdefault(pod.metadata.uid, time.monotonic())
        removal = describe_removal(pod, time.monotonic() - since)
        if not removal:
            return ""
        words = f"pod {pod.metadata.name} {removal}"
        self._say_once(words)
        return words

    def _has_chief_succeeded(self, pods: list[client.V1Pod]) -> bool:
        """Returns True if there is a model.

        JobSet looks at failed pods first, if another one failed in that moment.
        """
        return any(has_trained(pod) for pod in pods if self._kind.task_of(pod) == CHIEF_TASK)

    def _restart_or_fail(self, job: Mapping[str, Any], state: JobState, pods: list[client.V1Pod]) -> None:
        """Creates a failed job again if another try may succeed.

        The Training Operator gives up the whole TFJob if its pods were only taken away.
        JobSet does not know that training has advanced, and counts restarts after
        rejected pods too.
        """
        self._observe_all(job, pods)
        why = self._why(state)
        if state.restarts_used_up:
            self._budget.spend_all()
        is_counted = state.restarts_used_up or not self._kind.restarts_itself
        was_rejected = any(pod.metadata.uid in self._rejections.rejected for pod in pods)
        used_up = is_counted and not was_rejected and self._budget.is_used_up()
        has_failed_for_good = state.is_final or any(end.is_final for end in self._failed_pods.values())
        if has_failed_for_good or used_up:
            self._log.finish()
            raise FailedError(f"{why}\n{self._restarts_used_up()}" if used_up else why)
        logging.warning("%s; starting it again from its last save", why.splitlines()[0])
        self._failed_pods.clear()  # these failures and this start belong to the old job
        self._start = Start()
        self._replace()

    def _check_limits(self, state: JobState, seen: float) -> None:
        """Gives up a training that takes too long, or cannot succeed.

        Args:
          state: State of the job.
          seen: When it was read. The job may have ended since, while the cluster did
            not answer the requests after that.

        Raises:
          TrainingError: It does; the controller may not see that, or only later.
        """
        if not any(end.is_final for end in self._failed_pods.values()):
            self._failed_for_good_since = 0.0
        elif not self._failed_for_good_since:
            self._failed_for_good_since = time.monotonic()
        elif time.monotonic() - self._failed_for_good_since > FINAL_EXIT_SECONDS:
            raise TrainingError(self._why(state))
        if self._restarts.exceeded:
            raise TrainingError(f"{self._why(state)}\n{self._restarts_used_up()}")
        limit = self._limits.deadline_seconds
        # Waiting in a queue does not count.
        if limit and self._start.time and seen - self._start_seen > limit:
            raise TrainingError(f"{self._jobs} takes longer than active_deadline_seconds")

    def _observe_start(self, start: Start, seen: float) -> None:
        """Notes when the job was started, also after a suspension."""
        if start == self._start:
            return
        if start.uid == self._start.uid and self._start.time:
            # Pods that are created after a suspension do not count as restarts.
            self._history.forget_latest()
            self._ignored.update(self._pods)
            self._pods.clear()
            self._failed_pods.clear()
        self._start, self._start_seen = start, seen

    def _observe_all(self, job: Mapping[str, Any], pods: list[client.V1Pod]) -> None:
        """Notes the states of all pods of a job."""
        needed = self._history.list_needed(job, pods)
        for pod in pods:
            self._observe(pod, is_needed=self._kind.task_of(pod) in needed)
        # A training with many workers may see thousands, which take much memory.
        there = {pod.metadata.uid for pod in pods}
        for uid in [uid for uid in self._pods if uid not in there][:-MOST_GONE_PODS]:
            del self._pods[uid]

    def _observe(self, pod: client.V1Pod, is_needed: bool) -> None:
        """Notes the state of a pod. A failed pod is soon deleted, with its log.

        Args:
          pod: The pod.
          is_needed: False if the training goes on without it.
        """
        uid = pod.metadata.uid
        if uid in self._ignored:
            return
        self._pods[uid] = pod
        replaced = self._history.observe(pod)
        if not self._kind.restarts_itself:
            self._restarts.observe(replaced)
        self._report_removal(pod)
        self._starts.observe(pod, is_needed)
        self._rejections.observe(pod, replaced, is_needed)
        end = PodEnd.of(pod)
        if uid in self._rejections.rejected:  # it has printed nothing
            self._failed_pods[uid] = end
        elif end.how and uid not in self._failed_pods:
            self._failed_pods[uid] = replace(end, last_lines=tuple(self._jobs.last_lines(end.name, end.container)))
            logging.warning("pod %s %s", end.name, end.how)

    def _why(self, state: JobState) -> str:
        """Describes why the job failed.

        Has the controller's reason, if it knows, and the last lines of the pod that
        failed first.
        """
        reason = f": {state.reason or 'no reason is given'}" if state.phase == "failed" else ""
        lines = [f"{self._jobs} failed{reason}"]
        candidates = [end for end in self._failed_pods.values() if end.is_final] or list(self._failed_pods.values())[-1:]
        for end in sorted(candidates, key=lambda end: end.at)[:1]:
            lines.append(f"pod {end.name} {end.how}")
            lines += [f"  {line}" for line in end.last_lines]
            remedy = remedies.find_remedy(end.how) or remedies.find_remedy_for_output(end.last_lines)
            if remedy:
                lines.append(remedy)
        # The controller may have removed the pods before we could see them.
        if not candidates:
            lines += self._failed_starts()
        if not candidates and self._log.last_lines:
            lines += ["the last lines of the chief:", *(f"  {line}" for line in self._log.last_lines)]
        return "\n".join(lines)

    def _failed_starts(self) -> list[str]:
        """Describes why pods that are gone could not start: their events stay."""
        failures = (refusals.find_failed_start(self._jobs.list_events_of_pod(uid)) for uid in self._pods)
        lines = [remedies.with_remedy(failure) for failure in failures if failure][-1:]
        if lines:
            return lines
        # An init container that fails is not an event, and its pod may be gone at once.
        initial = ((pod, status.name) for pod in self._pods.values() if (status := find_initial(pod)))
        return [f"pod {pod.metadata.name} did not get past its init container {name}" for pod, name in initial][-1:]

    def _restarts_used_up(self) -> str:
        return f"All {self._limits.max_restarts} restarts (max_restarts) are used up"

    def _log_state(self, state: JobState) -> None:
        """Logs the state of the job if it has changed."""
        if state.words != self._logged_state:
            logging.info("%s: %s", self._jobs, state.words)
            self._logged_state = state.words

    def _say_once(self, words: str) -> None:
        """Logs why the training does not start, unless that is known already."""
        known = _RANDOM.sub("", words)
        if known not in self._said:
            self._said.add(known)
            logging.warning("%s", words)
