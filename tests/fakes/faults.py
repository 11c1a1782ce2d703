"""Training that is struck by a fault, and what came of it."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from running import children
from training import EXAMPLES, TrainingCluster

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, TrainingOptions, UserModule
from tfx_distribute.trainer_module.lifecycle.progress import Progress

EVERY = 10  # training steps between two saves
STRATEGIES = {
    "default": Distribution(accelerator_type="cpu"),
    "one_device": Distribution("one_device", accelerator_type="cpu"),
    "mirrored": Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    "parameter_server": Distribution("parameter_server", num_workers=2, accelerator_type="cpu"),
    "central_storage": Distribution("central_storage", accelerator_type="cpu", accelerator_count=2),
    "model_parallel": Distribution("model_parallel", accelerator_type="cpu", mesh="2x1"),
}


def fault(cluster: TrainingCluster, kind: str, task: str = "chief-0", **more: object) -> dict[str, object]:
    """hparams of a training in which one process is struck; see `faulty.py`."""
    return {**cluster.job.hparams, "fault": kind, "fault_task": task, "fault_file": str(cluster.folder / "struck"), **more}


def can_be_struck(cluster: TrainingCluster) -> TrainingCluster:
    """The cluster with a module that plays fate, which saves every ten training steps of two epochs."""
    outputs = replace(cluster.job.outputs, checkpoint_dir=str(cluster.folder / "checkpoints"))
    cluster.job = replace(
        cluster.job,
        module=UserModule("faulty.build_model", (str(Path(__file__).parent), str(EXAMPLES / "digits"))),
        schedule=TrainingOptions(32, epochs=2),
        outputs=outputs,
        recovery=FaultTolerance(save_checkpoints_steps=EVERY, heartbeat_timeout_secs=3),
    )
    return cluster


def weights(cluster: TrainingCluster) -> list:
    """All variables of the exported model."""
    return [variable.numpy() for variable in tf.saved_model.load(str(cluster.model)).variables]


def messages(cluster: TrainingCluster) -> list[str]:
    """What was said of the last training."""
    return [progress.message for task, progress in cluster.reports if progress.message and task.role == "chief"]


def continued(cluster: TrainingCluster) -> list[int]:
    """After which training steps tries went on."""
    return [int(message.rpartition(" ")[2]) for message in messages(cluster) if message.startswith("continues after")]


def struck(cluster: TrainingCluster) -> dict[str, float]:
    """At which training step the fault struck, and when."""
    return dict(json.loads((cluster.folder / "struck").read_text()))


class Strike:
    """Sends a signal, once, to some of a cluster's processes when its chief is past a training step.

    Args:
      cluster: The cluster.
      number: The signal.
      step: The training step.
      which: Numbers of the processes in the order of their start: chief, workers, parameter servers. Default: all.
    """

    def __init__(self, cluster: TrainingCluster, number: int, step: int, which: Sequence[int] | None = None):
        self._cluster, self._number, self._step, self._which = cluster, number, step, which
        self.pids: list[int] = []

    def __call__(self, task: ClusterTask, progress: Progress) -> None:
        if not self.pids and progress.step > self._step and not progress.message:
            running = sorted(children(self._cluster.server.pid))
            self.pids = [running[index] for index in self._which] if self._which is not None else running
            for pid in self.pids:
                os.kill(pid, self._number)
