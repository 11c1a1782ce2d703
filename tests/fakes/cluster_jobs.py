"""Runs jobs on a real cluster whose pods run shell commands, with their launcher."""

import uuid
from typing import Any

from kubernetes import client
from launching import Launch, pod_templates
from real_cluster import CLAIM, USER, Document, Namespace, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JobKind
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.trainer_module.job.training_job import Distribution


class ClusterJob(Launch):
    """A job whose pods run a shell command, and its launcher.

    Args:
      namespace: Where it runs.
      kind: Kind of the job.
      command: Shell command of all pods.
      distribution: Processes of the job; default two of `multi_worker_mirrored` for two
        workers, else one.
      workers: Number of workers.
      max_restarts: How many times the cluster may restart.
      queue: Local queue of Kueue.
      labels: Labels of the job.
      **container: More fields of the containers.
    """

    def __init__(
        self,
        namespace: Namespace,
        kind: JobKind,
        command: str,
        distribution: Distribution | None = None,
        workers: int = 1,
        max_restarts: int = 3,
        queue: str | None = None,
        labels: dict[str, str] | None = None,
        **container: Any,
    ):
        self.namespace = namespace
        if distribution is None:
            distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
        template = _pod_template(namespace.image, container)
        settings = KubernetesSettings(
            "digits",
            template,
            template,
            training=kind.name,
            queue=queue,
            labels=labels or {},  # type: ignore[arg-type]
        )
        training = Training(f"digits-{uuid.uuid4().hex[:8]}", "/job.json", distribution, {}, max_restarts)
        launcher = KubernetesLauncher(settings)
        manifest = launcher.request(training)
        for made in pod_templates(manifest):
            made["spec"]["containers"][0]["command"] = ["sh", "-c", command]
        super().__init__(launcher, manifest, max_restarts)

    @property
    def job(self) -> Document | None:
        """The job; None if it does not exist."""
        return next((job for job in self.namespace.jobs(self.kind) if job["metadata"]["name"] == self.name), None)

    def pods(self) -> list[client.V1Pod]:
        """Returns its pods, the chief's first."""
        pods = self.namespace.pods(**{self.kind.name_label: self.name})
        return sorted(pods, key=self.kind.task_of)

    def wait_for_running(self, count: int = 1) -> list[client.V1Pod]:
        """Returns its pods once so many run, and no others."""

        def running() -> list[client.V1Pod] | None:
            pods = [pod for pod in self.pods() if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
            return pods if len(pods) == count else None

        found: list[client.V1Pod] = wait_until(running, 90)
        return found

    def delete(self) -> None:
        self.namespace.delete_job(self.kind, self.name)

    def suspend(self, value: bool) -> None:
        self.namespace.suspend_job(self.kind, self.name, value)

    def touch(self, file: str) -> None:
        """Makes a file of the shared volume, as a sign to the running pods."""
        pod = wait_until(lambda: next((pod for pod in self.pods() if pod.status.phase == "Running"), None))
        self.namespace.execute(pod.metadata.name, ["touch", file])


def _pod_template(image: str, container: Document) -> Document:
    return {
        "metadata": {"labels": {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": USER, "fsGroup": USER},
            "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "containers": [
                {
                    "name": "tensorflow",
                    "image": image,
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                    **container,
                }
            ],
        },
    }
