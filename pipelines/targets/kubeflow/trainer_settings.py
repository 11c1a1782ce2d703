"""Computes the settings of Trainers on Kubeflow: launcher and checkpoint folder.

Imports neither TFX nor TensorFlow.
"""

from collections.abc import Mapping

from tfx_distribute.components.launchers.kubernetes.settings import KubernetesSettings
from tfx_distribute.pipelines.spec.machines import PARAMETER_SERVER, TRAINER, MachineSpec, machine_of
from tfx_distribute.pipelines.targets.kubeflow.pod_template import make_pod_template
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings


def launcher(
    name: str, resources: Mapping[str, MachineSpec], settings: KubeflowSettings, trainer: str = TRAINER
) -> KubernetesSettings:
    """Returns the description of the pods that a Trainer may have to create.

    `name` is that of the pipeline; `trainer` is the key of the machine in `resources`.
    """
    return KubernetesSettings(
        name=name,
        worker=make_pod_template(machine_of(resources, trainer), settings),
        parameter_server=make_pod_template(machine_of(resources, PARAMETER_SERVER), settings),
        training=settings.training,
        training_dir=settings.training_dir,
        labels=settings.labels,
        queue=settings.queue,
        start_timeout_seconds=settings.start_timeout_seconds,
        active_deadline_seconds=settings.active_deadline_seconds,
    )


def checkpoint_dir(name: str, settings: KubeflowSettings) -> str | None:
    """Returns the folder of a pipeline's checkpoints; None for the Trainer's default.

    It does not depend on the run, so that a later run finds the checkpoints: its steps
    have other addresses.
    """
    if settings.training_dir:
        return f"{settings.training_dir.rstrip('/')}/checkpoints"
    root = settings.pipeline_root.rstrip("/")
    return f"{root}/{name}/checkpoints" if root.startswith("gs://") else None
