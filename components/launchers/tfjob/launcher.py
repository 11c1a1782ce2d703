"""The TFJob launcher: creates a training cluster on Kubernetes, follows it, and removes it if it is not to go on."""

import base64
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

from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.launchers.tfjob import status as tfjob_status
from tfx_distribute.components.launchers.tfjob.client import JOB_LABEL, POLL_SECONDS, TFJobClient
from tfx_distribute.components.launchers.tfjob.pod_log import PodLog
from tfx_distribute.components.launchers.tfjob.status import Ended, Start
from tfx_distribute.trainer_module.errors import TrainingError

OUT_OF_TIME = "active longer than specified deadline"  # the operator's words
START_SECONDS = 300.0  # a pod may fail to start, for want of an image or a secret, which may yet come

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TOKEN_FILE = _NAMESPACE_FILE.with_name("token")
_ACCOUNT = "system:serviceaccount:"  # in front of its namespace and name


def owner() -> tfjob_manifest.Owner | None:
    """The pod that this step runs in, as Kubeflow Pipelines tells it; None elsewhere."""
    name, uid = os.environ.get("KFP_POD_NAME"), os.environ.get("KFP_POD_UID")
    return tfjob_manifest.Owner(name, uid) if name and uid else None


def service_account() -> str | None:
    """The service account that this step acts as; None outside of a cluster."""
    try:
        _, claims, _ = _TOKEN_FILE.read_text(encoding="utf-8").split(".")
        # A JWT leaves out the padding. Nothing is let in by what it says, so its signature does not matter here.
        subject = str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])
    except (OSError, ValueError, KeyError):
        return None
    return subject.rpartition(":")[2] if subject.startswith(_ACCOUNT) else None


def with_service_account(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Has the pods of a TFJob act as a service account, where their templates name none."""
    manifest = copy.deepcopy(manifest)
    for replica in manifest["spec"]["tfReplicaSpecs"].values():
        replica["template"]["spec"].setdefault("serviceAccountName", name)
    return manifest


def run(manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None = None, *, anew: bool = False) -> None:
    """Has a TFJob train, to its end.

    One of the same name is of an earlier try of this step: if it goes on it is followed, if it has succeeded all is done.

    Args:
      manifest: The TFJob. Where its pods name no service account, they act as this step does.
      max_restarts: How often its cluster may start again.
      deadline_seconds: Seconds that it may take from its start, or from when it was last resumed.
      anew: Whether one that has succeeded is to be made again.

    Raises:
      ConfigurationError: It cannot be created.
      TrainingError: It failed, or is gone; the message has the last lines of the pod that failed.
    """
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    account = service_account()
    if account:  # without one they would act as the namespace's default, which may reach neither data nor images
        manifest = with_service_account(manifest, account)
    jobs = TFJobClient(manifest["metadata"]["name"], _namespace())
    with terminable():
        try:
            if jobs.create(manifest, anew):
                _JobWatcher(jobs, manifest, max_restarts, deadline_seconds).follow()
        except _FailedError:
            raise  # it has ended, and stays for people to look at
        except BaseException:
            logging.info("removing TFJob %s", jobs.name)
            jobs.delete()
            raise


class _FailedError(TrainingError):
    """The TFJob has failed, and is over."""


class _JobWatcher:
    """Follows a TFJob to its end.

    Args:
      jobs: Requests about it.
      manifest: What it was made from.
      max_restarts: How often its cluster may start again.
      deadline_seconds: Seconds that it may take from its start, or from when it was last resumed.
    """

    def __init__(self, jobs: TFJobClient, manifest: dict[str, Any], max_restarts: int, deadline_seconds: int | None):
        self._jobs = jobs
        self._manifest = manifest
        self._max_restarts = max_restarts
        self._deadline_seconds = deadline_seconds
        selector = f"{JOB_LABEL}={jobs.name},training.kubeflow.org/replica-type=chief"
        self._log = PodLog(jobs.namespace, selector)
        self._told = ""
        self._start = Start()
        self._start_seen = 0.0  # when we saw that, by our own clock: the cluster's may be another
        self._pods: dict[str, set[str]] = {}  # name -> uids: one that is made anew has another
        self._restarted: Counter[str] = Counter()  # name -> how often it was made anew before it was suspended
        self._set_aside: set[str] = set()  # uids of pods of before that
        self._waiting: dict[str, str] = {}  # uid -> what it was last said to wait for
        self._stuck: dict[str, float] = {}  # uid -> since when it cannot start
        self._ended: dict[str, Ended] = {}  # uid -> how it ended, of the pods that failed

    def follow(self) -> None:
        """Returns when it has succeeded.

        Raises:
          TrainingError: It failed, is gone, or takes too long.
        """
        with self._log as log:
            while True:
                job = self._jobs.get()
                self._tell(job)
                self._see_start(job)
                condition = tfjob_status.condition(job)
                if condition == "Succeeded":
                    log.finish()
                    return
                if condition == "Failed":
                    self._failed(job)
                if condition != "Suspended":  # then they are taken away, or already those of when it is resumed
                    for pod in self._jobs.pods():
                        self._see(pod)
                if self._restarts() > self._max_restarts:
                    raise TrainingError(f"{self._why(job)}\n{self._used_up()}")
                if self._is_late():
                    # The operator looks at the clock only when something else happens to the job.
                    raise TrainingError(f"TFJob {self._jobs.name} takes longer than active_deadline_seconds")
                time.sleep(POLL_SECONDS)

    def _see_start(self, job: dict[str, Any]) -> None:
        """Takes in when the operator started the job, which it does again after each suspension."""
        start = Start.of(job)
        if start == self._start:
            return
        if start.uid == self._start.uid and self._start.time:
            # Pods that are made after a suspension are no restarts.
            for name, uids in self._pods.items():
                self._restarted[name] += len(uids) - 1
                self._set_aside |= uids
            self._pods.clear()
            self._ended.clear()
        self._start, self._start_seen = start, time.monotonic()

    def _is_late(self) -> bool:
        if not self._deadline_seconds or not self._start.time:  # as long as it waits for its turn
            return False
        return time.monotonic() - self._start_seen > self._deadline_seconds

    def _failed(self, job: dict[str, Any]) -> None:
        """Starts it again where its pods were only taken away, for which the operator gives up the whole job."""
        for pod in self._jobs.pods():
            self._see(pod)
        why = self._why(job)
        if any(ended.is_final for ended in self._ended.values()) or OUT_OF_TIME in tfjob_status.latest(job).get(
            "message", ""
        ):
            self._log.finish()
            raise _FailedError(why)
        if self._restarts() >= self._max_restarts:
            self._log.finish()
            raise _FailedError(f"{why}\n{self._used_up()}")
        logging.warning("%s; starting it again from its last save", why.splitlines()[0])
        self._ended.clear()  # what its pods did is not the next one's
        self._start = Start()  # nor is its time
        self._jobs.replace(self._manifest)

    def _see(self, pod: client.V1Pod) -> None:
        """Takes in how a pod is. One that failed is soon gone, with what it printed."""
        uid = pod.metadata.uid
        if uid in self._set_aside:
            return
        self._pods.setdefault(pod.metadata.name, set()).add(uid)
        waits_for = tfjob_status.waits_for(pod)
        if waits_for and self._waiting.get(uid) != waits_for:
            self._waiting[uid] = waits_for
            logging.info("pod %s %s", pod.metadata.name, waits_for)
        cannot_start = tfjob_status.cannot_start(pod)
        if cannot_start and time.monotonic() - self._stuck.setdefault(uid, time.monotonic()) > START_SECONDS:
            raise TrainingError(f"TFJob {self._jobs.name}: pod {pod.metadata.name} {cannot_start}")
        ended = Ended.of(pod)
        if ended.how and uid not in self._ended:
            self._ended[uid] = replace(ended, last_lines=tuple(self._jobs.last_lines(ended.name)))
            logging.warning("pod %s %s", ended.name, ended.how)

    def _why(self, job: dict[str, Any]) -> str:
        """Why the TFJob failed: what the operator says, and what the pod that failed first, of the last try, said last."""
        latest = tfjob_status.latest(job)
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
        return max([self._restarted[name] + len(uids) - 1 for name, uids in self._pods.items()], default=0)

    def _used_up(self) -> str:
        return f"All {self._max_restarts} restarts (max_restarts) are used up"

    def _tell(self, job: dict[str, Any]) -> None:
        state = tfjob_status.state(job)
        if state != self._told:
            logging.info("TFJob %s: %s", self._jobs.name, state)
            self._told = state


def _namespace() -> str:
    """The namespace of this pod, where the TFJob has to be too; outside of a cluster, that of kubectl's context."""
    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    _, active = config.list_kube_config_contexts()
    return str(active["context"].get("namespace", "default"))
