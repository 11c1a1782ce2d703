"""Runs jobs on a real cluster whose pods run commands, with their launcher."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes import client
from launching import Launch, pod_templates
from real_cluster import CLAIM, USER, Document, Namespace, wait_until

from tfx_distribute.components.launchers.kubernetes.job_kinds import JobKind, KubernetesSettings
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.kubeflow.machines import make_pod_template
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.job.training_job import Distribution

JOB = "/shared/training/job.json"


class ClusterJob(Launch):
    """A job whose pods run a command, and its launcher.

    Args:
      namespace: Where it runs.
      kind: Kind of the job.
      command: Command of all pods: a text for a shell, None for that of a training
        process.
      template: Template of its pods, such as `shell_pod`.
      distribution: Processes of the job; default two of `multi_worker_mirrored` for two
        workers, else one.
      workers: Number of workers.
      max_restarts: How many times the cluster may restart.
      queue: Local queue of Kueue.
      labels: Labels of the job.
      **limits: Other limits of the launcher.
    """

    def __init__(
        self,
        namespace: Namespace,
        kind: JobKind,
        command: str | Sequence[str] | None,
        template: Document,
        distribution: Distribution | None = None,
        workers: int = 1,
        max_restarts: int = 3,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        **limits: Any,
    ):
        self.namespace = namespace
        if distribution is None:
            distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
        settings = KubernetesSettings("digits", template, template, training=kind.name, queue=queue, labels=labels or {})  # type: ignore[arg-type]
        training = Training(f"digits-{uuid.uuid4().hex[:8]}", JOB, distribution, {}, max_restarts)
        launcher = KubernetesLauncher(settings)
        manifest = launcher.request(training)
        if command is not None:
            words = ["sh", "-c", command] if isinstance(command, str) else list(command)
            for made in pod_templates(manifest):
                made["spec"]["containers"][0]["command"] = words
        super().__init__(launcher, manifest, max_restarts, **limits)

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

    def touch(self, file: str) -> None:
        """Makes a file of the shared volume, as a sign to the running pods."""
        pod = wait_until(lambda: next((pod for pod in self.pods() if pod.status.phase == "Running"), None))
        self.namespace.execute(pod.metadata.name, ["touch", file])


def shell_pod(image: str, resources: Document | None = None) -> Document:
    """Returns the template of a pod with the claim at /shared."""
    container = {"name": "tensorflow", "image": image, "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    return {
        "metadata": {"labels": {}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": USER, "fsGroup": USER},
            "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": CLAIM}}],
            "containers": [{**container, **({"resources": resources} if resources else {})}],
        },
    }


def file_pod(pod: Mapping[str, Any], **settings: Any) -> Document:
    """Returns the template of a pod of a pipeline file.

    `settings` are those of `targets.kubeflow`; `pod` replaces parts of the pod's spec.
    """
    target = KubeflowSettings(**{"pipeline_root": "gs://bucket/root", **settings})
    template = make_pod_template(MachineSpec(), target)
    template["spec"] |= {"terminationGracePeriodSeconds": 1, **pod}
    if target.security_context.run_as_non_root is not False:  # as the launcher does in a step
        template["spec"]["securityContext"] = {"runAsUser": USER, **template["spec"]["securityContext"]}
    return template
