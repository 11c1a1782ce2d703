"""Launches a training in pods of Kubernetes."""

import base64
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.kubernetes import reasons
from tfx_distribute.components.launchers.kubernetes.job_kinds import (
    JOB_KINDS,
    QUEUE_LABEL,
    JobState,
    KubernetesSettings,
    Step,
)
from tfx_distribute.components.launchers.kubernetes.pods import LAST_LINES, ChiefLog, PodEnd, has_started, has_trained
from tfx_distribute.components.launchers.launcher import Failure, Launcher, Request, State, Training
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask, tasks_of

if TYPE_CHECKING:
    from kubernetes import client

    from tfx_distribute.components.launchers.kubernetes.client import JobClient

_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ACCOUNT = "system:serviceaccount:"  # prefix of `NAMESPACE:NAME` in a token
# Parts of the cluster's words that differ each time: ends of names that it makes up,
# ids of containers, and ports that it connects from.
_RANDOM = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b|\b[0-9a-f]{12,}\b|:\d+(?=->)")


class KubernetesLauncher(Launcher[KubernetesSettings]):
    """Runs a training in the pods of a JobSet or a TFJob.

    Its step owns the job, so that Kubernetes deletes the job together with the step.
    """

    Settings = KubernetesSettings

    def __init__(self, settings: KubernetesSettings):
        super().__init__(settings)
        chosen = JOB_KINDS.get(settings.training)
        self._kinds = [chosen] if chosen else list(JOB_KINDS.values())
        self._training: Training | None = None
        self._tasks: set[ClusterTask] = set()
        self._jobs: JobClient | None = None
        self._log = ChiefLog()
        self._news: dict[str, str] = {}  # without what differs each time -> words
        self._look_at = 0.0
        self._failed_pods: dict[str, PodEnd] = {}  # uid -> how the pod failed
        self._owners: set[str] = set()  # uid of this step's pod
        self._complete = ""  # uid of the chief's pod with which all others ran

    def request(self, training: Training) -> Request:
        """Makes the manifest of a job of the preferred kind; see `Launcher`."""
        self._training = training
        self._tasks = set(tasks_of(training.distribution))
        return self._kinds[0].make_manifest(training, self.settings, _find_step())

    def start(self, request: Request, has_result: bool) -> bool:
        """Creates the job, or takes over that of an earlier attempt; see `Launcher`.

        Of several kinds, it takes the first that the cluster has and, with a queue,
        that Kueue manages.
        """
        from tfx_distribute.components.launchers.kubernetes import client

        client.load_config()
        kinds = [kind for kind in self._kinds if len(self._kinds) == 1 or client.has_kind(kind)]
        kinds = kinds or self._kinds[:1]  # without any, the cluster refuses the preferred one
        for kind in kinds:
            if kind.title != request["kind"] and self._training:
                request = kind.make_manifest(self._training, self.settings, _find_step())
            self._jobs = client.JobClient(kind, request["metadata"]["name"], _namespace())
            if self._start(request, has_result):
                self._kinds = [kind]
                return True
        if has_result:
            return False
        names = " and ".join(f"{kind.title}s" for kind in kinds)
        raise ConfigurationError(
            f"targets.kubeflow.queue: {names} of this cluster do not wait in queues; have Kueue installed "
            "(https://kueue.sigs.k8s.io), have the kind added to integrations.frameworks in its configuration, or leave "
            "queue out"
        )

    def _start(self, manifest: Request, has_result: bool) -> bool:
        """Creates or takes over a job of one kind; returns True if there is one."""
        jobs, owners = self._client(), manifest["metadata"].get("ownerReferences", [])
        self._owners = {owner["uid"] for owner in owners}
        self._failed_pods.clear()
        while has_result or not (created := jobs.create(manifest)):
            if self._take_over(owners):
                return True
            if has_result:
                return False
            self._wait_until_gone()
        if QUEUE_LABEL in manifest["metadata"]["labels"] and jobs.kind.read_state(created).phase != "suspended":
            jobs.delete()  # it would run past the queue
            return False
        logging.info("created %s in namespace %s", jobs, jobs.namespace)
        return True

    def _take_over(self, owners: list[dict[str, Any]]) -> bool:
        """Becomes the owner of a job; returns False if it has ended or is gone."""
        jobs = self._client()
        try:
            if self._has_ended(jobs.get()):
                return False
            # The pod of the earlier attempt owns it, and would take it along when it is
            # deleted.
            jobs.set_owners(owners)
        except GoneError:
            return False
        logging.info("%s of an earlier attempt is still running; following it", jobs)
        return True

    def _wait_until_gone(self) -> None:
        """Deletes an ended job; raises a TrainingError if it is not gone in time."""
        jobs = self._client()
        jobs.delete(condition=self._has_ended)  # and not one that another attempt has created since
        deadline = time.monotonic() + timeouts.ANSWER_SECONDS
        while time.monotonic() < deadline:
            try:
                jobs.get()
            except GoneError:
                return
            time.sleep(self.poll_seconds)
        raise TrainingError(
            f"{jobs} has ended, and cannot be created again: {timeouts.ANSWER_SECONDS:g} s after its deletion it is still "
            "there. If a machine is lost, `kubectl delete node` removes its pods"
        )

    def state(self) -> State:
        """Reads the status of the job and its pods; see `Launcher`."""
        jobs = self._client()
        job, pods = jobs.get(), jobs.list_pods()
        if not self._is_own(job):
            raise NotFollowedError(f"another attempt of this step follows {jobs} by now")
        state = jobs.kind.read_state(job)
        num_running = sum(pod.status.phase == "Running" for pod in pods)
        words = f"{jobs}: {state.phase}, {num_running} of {len(self._tasks)} pods run"
        chiefs = [pod for pod in pods if jobs.kind.task_of(pod) == CHIEF_TASK]
        for chief in filter(has_started, chiefs):
            self._log.read(jobs, chief)
        # A controller looks at failed pods first, if another one failed in that moment.
        if state.phase == "succeeded" or (state.phase == "failed" and any(map(has_trained, chiefs))):
            return State("succeeded", words)
        if state.phase == "suspended":
            self._failed_pods.clear()  # the pods are being removed
        else:
            for pod in pods:
                self._note_end(pod)
        if state.phase == "failed":
            is_final = state.is_final or any(end.is_final for end in self._failed_pods.values())
            return State("failed", words, Failure(self._why(state), is_final, has_restarted=state.has_restarted))
        if state.phase != "suspended" and self._has_started(pods):
            return State("running", words)
        reason = self._look(job, state)
        if reason:
            jobs.delete()
            return State("failed", words, Failure(f"{jobs}: {reason}", is_final=True))
        return State("queued" if state.phase == "suspended" else "starting", words)

    def news(self) -> list[str]:
        """Returns warnings about the job and its pods, and what it waits for."""
        return list(self._news.values())

    def stop(self, has_time: bool) -> None:
        """Deletes the job, unless another attempt of the step follows it by now."""
        if self._jobs and self._jobs.is_sent:
            self._jobs.delete(has_time, self._is_own)

    def _has_ended(self, job: Mapping[str, Any]) -> bool:
        phase = self._client().kind.read_state(job).phase
        return "deletionTimestamp" in job["metadata"] or phase in ("failed", "succeeded")

    def _is_own(self, job: Mapping[str, Any]) -> bool:
        """Returns True if the step that owns a job is this one."""
        return {owner["uid"] for owner in job["metadata"].get("ownerReferences", ())} >= self._owners

    def _client(self) -> "JobClient":
        assert self._jobs is not None, "start comes first"
        return self._jobs

    def _has_started(self, pods: "list[client.V1Pod]") -> bool:
        """Returns True if all pods have started since the chief's did."""
        kind = self._client().kind
        started = {kind.task_of(pod): pod.metadata.uid for pod in pods if has_started(pod)}
        if self._tasks <= started.keys():
            self._complete = started[CHIEF_TASK]
        return bool(self._complete) and self._complete == started.get(CHIEF_TASK)

    def _look(self, job: Mapping[str, Any], state: JobState) -> str:
        """Notes what the cluster says about a job that does not run.

        Returns a reason that no waiting ends; empty if there is none.
        """
        now = time.monotonic()
        if now - self._look_at < timeouts.NEWS_SECONDS:
            return ""
        self._look_at, jobs = now, self._client()
        said: list[tuple[str, str]] = []  # about what, words
        for event in jobs.list_warnings(job):
            about = event.involved_object
            said.append((f"{about.kind} {about.name}: ", f"{event.reason}: {event.message}"))
        if state.phase == "suspended" and not self.settings.queue:
            words = "is suspended, and in no queue; write targets.kubeflow.queue, or have it resumed"
            said.append((f"{jobs}: ", words))
        elif state.phase == "suspended":
            said.append((f"{jobs} waits in queue {self.settings.queue}: ", reasons.find_wait(jobs.list_workloads(job))))
        for subject, words in said:
            if not words:
                continue
            # The same about each of many pods is said once.
            self._news.setdefault(_RANDOM.sub("", words), subject + reasons.with_remedy(words))
            if reasons.is_final(words):
                return subject + reasons.with_remedy(words)
        return ""

    def _note_end(self, pod: "client.V1Pod") -> None:
        """Notes how a pod failed: it is soon deleted, with its log."""
        end, uid = PodEnd.of(pod), pod.metadata.uid
        if end.how and uid not in self._failed_pods:
            lines = self._client().read_log(end.name, tail_lines=LAST_LINES) or []
            end = replace(end, last_lines=tuple(line.partition(" ")[2] for line in lines))
            self._failed_pods[uid] = end
            self._news[uid] = f"pod {end.name} {end.how}"

    def _why(self, state: JobState) -> str:
        """Describes why the job failed.

        Has the controller's reason, and the last lines of the pod that failed first.
        """
        lines = [f"{self._jobs} failed: {state.reason or 'no reason is given'}"]
        ends = [end for end in self._failed_pods.values() if end.is_final] or list(self._failed_pods.values())
        for end in sorted(ends, key=lambda end: end.at)[:1]:
            lines += [f"pod {end.name} {end.how}", *(f"  {line}" for line in end.last_lines)]
            # What Python prints last says whether it could start.
            remedies = (reasons.find_remedy(words) for words in (end.how, *end.last_lines[-1:]))
            lines += list(filter(None, remedies))[:1]
        return "\n".join(lines)


def _find_step() -> Step | None:
    """Returns this step's pod, from Kubeflow Pipelines' variables; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    account = _find_account()
    return Step(name, uid, account, os.getuid(), os.getgid()) if name and uid and account else None


def _find_account() -> str:
    """Returns the name of this step's service account; empty outside a cluster."""
    try:
        _, claims, _ = (_ACCOUNT_FOLDER / "token").read_text(encoding="utf-8").split(".")
        # A JWT leaves out the padding. Its signature is not checked: nobody gets access
        # by what it says here.
        subject = str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])
    except (OSError, ValueError, KeyError):
        return ""
    return subject.rpartition(":")[2] if subject.startswith(_ACCOUNT) else ""


def _namespace() -> str:
    """Returns this pod's namespace, where the job has to be too.

    Outside a cluster, returns that of kubectl's current context.
    """
    from kubernetes import config

    file = _ACCOUNT_FOLDER / "namespace"
    if file.exists():
        return file.read_text(encoding="utf-8").strip()
    _, active = config.list_kube_config_contexts()
    return str(active["context"].get("namespace", "default"))
