"""Runs the contract of launchers with a fake of the Kubernetes API and its operator."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from kubernetes_api import ApiServer
from launcher_harness import Act, Harness
from tfjobs import ALLOWED, NAME, NAMESPACE, SETTINGS, condition, pod, status

from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.launcher import Launcher, Restarts, Training
from tfx_distribute.trainer_module.job.training_job import Distribution


class KubernetesHarness(Harness):
    """Does to the pod of each TFJob, and says of it, what the act wants."""

    SKIPPED: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self._api = ApiServer(allowed=ALLOWED)
        self._api.__enter__()
        self._api.write_kubeconfig(folder / "kubeconfig", namespace=NAMESPACE)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "kubeconfig"))
        self.training = Training(NAME, "/job.json", Distribution(), {})
        self._acts: tuple[Act, ...] = ()
        self._seen: list[str] = []  # uids of TFJobs
        self._ended = threading.Event()
        self._operator = threading.Thread(target=self._operate, daemon=True)
        self._operator.start()

    def act(self, *acts: Act) -> None:
        self._acts = acts

    def make_launcher(self, restarts: Restarts) -> Launcher[Any]:
        return KubernetesLauncher(SETTINGS)

    def num_starts(self) -> int:
        return len(self._seen) if self._acts[0] != "wait" else 0

    def is_running(self) -> bool:
        return any(each["status"]["phase"] == "Running" for each in self._api.objects("pods"))

    def exists(self) -> bool:
        """TFJobs that have ended stay for people to look at."""
        unfinished = [job for job in self._api.objects("tfjobs") if not _has_ended(job)]
        return bool(unfinished) or self.is_running()

    def close(self) -> None:
        self._ended.set()
        self._operator.join()
        self._api.__exit__()

    def _operate(self) -> None:
        while not self._ended.is_set():
            for job in self._api.objects("tfjobs"):
                if job["metadata"]["uid"] not in self._seen:
                    self._start(job)
            time.sleep(0.02)

    def _start(self, job: dict[str, Any]) -> None:
        self._seen.append(job["metadata"]["uid"])
        act = self._acts[min(len(self._seen), len(self._acts)) - 1]
        if act == "wait":
            return
        exit_code = {"fail": 143, "break": 1}.get(act)
        made = pod(uid=f"pod-{len(self._seen)}", exit_code=exit_code)
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": NAME, "uid": job["metadata"]["uid"]}
        ]
        if act == "succeed":
            made["status"] = {"phase": "Succeeded"}
        self._api.set_pod(NAMESPACE, made)
        end = {"succeed": "Succeeded", "fail": "Failed", "break": "Failed"}.get(act, "Running")
        self._api.set_status(NAMESPACE, NAME, status(condition(end)))


def _has_ended(job: dict[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Succeeded", "Failed") for each in conditions)
