"""Runs jobs on a real cluster whose pods are those of a pipeline file."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from launching import Launch, pod_templates
from real_cluster import USER, Namespace

from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind
from tfx_distribute.components.launchers.kubernetes.launcher import KubernetesLauncher
from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.components.launchers.launcher import Training
from tfx_distribute.pipelines.spec.machines import MachineSpec
from tfx_distribute.pipelines.targets.kubeflow.machines import make_pod_template
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.trainer_module.job.training_job import Distribution

JOB = "/shared/training/job.json"


def start(
    namespace: Namespace,
    kind: JobKind,
    command: str | Sequence[str] | None = "exit 0",
    workers: int = 1,
    machine: MachineSpec | None = None,
    pod: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Launch:
    """Starts a job.

    Args:
      namespace: Where it runs.
      kind: Kind of the job.
      command: Command of its pods: a text for a shell, None for that of a training
        process.
      workers: Number of workers.
      machine: The machine of a pod.
      pod: Replaces parts of the spec of pods.
      container: Replaces parts of the spec of their container.
      options: More arguments of `Launch`.
      **settings: Settings of `targets.kubeflow`.
    """
    target = KubeflowSettings(**{"image": namespace.image, "pipeline_root": "gs://bucket/root", **settings})
    template = make_pod_template(machine or MachineSpec(), target)
    template["spec"] |= {"terminationGracePeriodSeconds": 1, **(pod or {})}
    template["spec"]["containers"][0] |= container or {}
    if target.security_context.run_as_non_root is not False:  # as the launcher does in a step
        template["spec"]["securityContext"] = {"runAsUser": USER, **template["spec"]["securityContext"]}
    distribution = Distribution("multi_worker_mirrored", num_workers=workers) if workers > 1 else Distribution()
    training = Training(f"digits-{uuid.uuid4().hex[:8]}", JOB, distribution, {}, 1)
    launcher = KubernetesLauncher(KubernetesSettings("digits", template, template, training=kind.name))  # type: ignore[arg-type]
    manifest = launcher.request(training)
    if command is not None:
        for made in pod_templates(manifest):
            words = ["sh", "-c", command] if isinstance(command, str) else list(command)
            made["spec"]["containers"][0]["command"] = words
    return Launch(launcher, manifest, 1, **(options or {}))
