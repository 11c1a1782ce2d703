"""Trains with injected faults and describes the outcome."""

import json
import os
from dataclasses import replace
from pathlib import Path

import tensorflow as tf
from running import training_processes
from training import EXAMPLES, TrainingCluster

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, TrainingOptions, UserModule
from tfx_distribute.trainer_module.reporting.progress import Progress

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
    """Returns hparams that inject a fault into one process; see `faulty.py`."""
    return {**cluster.job.hparams, "fault": kind, "fault_task": task, "fault_file": str(cluster.folder / "struck"), **more}


def several(cluster: TrainingCluster, faults: list[dict[str, object]]) -> dict[str, object]:
    """Returns hparams that inject several faults of `fault`, one after the other."""
    files = [str(cluster.folder / f"struck-{number}") for number in range(len(faults))]
    return {
        **cluster.job.hparams,
        "faults": [{**each, "fault_file": file} for each, file in zip(faults, files, strict=True)],
    }


def can_be_struck(cluster: TrainingCluster) -> TrainingCluster:
    """Gives the cluster's job a module that injects faults; returns the cluster.

    The job trains two epochs and saves every ten training steps.
    """
    outputs = replace(cluster.job.outputs, checkpoint_dir=str(cluster.folder / "checkpoints"))
    cluster.job = replace(
        cluster.job,
        module=UserModule("faulty.build_model", (str(Path(__file__).parent), str(EXAMPLES / "digits"))),
        training_options=TrainingOptions(32, epochs=2),
        outputs=outputs,
        fault_tolerance=FaultTolerance(save_checkpoints_steps=EVERY, heartbeat_timeout_secs=3),
    )
    return cluster


def weights(cluster: TrainingCluster) -> list:
    """Returns the values of all variables of the exported model."""
    return [variable.numpy() for variable in tf.saved_model.load(str(cluster.model)).variables]


def continued(cluster: TrainingCluster) -> list[int]:
    """Returns the training steps after which the tries of the last training resumed."""
    return [int(message.rpartition(" ")[2]) for message in cluster.messages() if message.startswith("continues after")]


def saves_before(step: int) -> set[int]:
    """Returns the steps that the last complete save may be of when a process dies.

    A save in the background may not have been complete. Then the one before it counts.
    """
    last = step // EVERY * EVERY
    return {last - EVERY, last}


def struck(cluster: TrainingCluster) -> dict[str, float]:
    """Returns the training step of the fault as `step`, and its time as `at`."""
    return dict(json.loads((cluster.folder / "struck").read_text()))


class Strike:
    """Sends a signal to processes of a cluster once its chief is past a training step.

    Pass it to `TrainingCluster.train` as `on_progress`.

    Args:
      cluster: The cluster.
      signal_number: The signal.
      step: The training step.
      task: Name of the task whose process gets the signal, such as `ps-0`; all
        processes by default.

    Attributes:
      pids: Ids of the processes that got the signal; empty before.
    """

    def __init__(self, cluster: TrainingCluster, signal_number: int, step: int, task: str = ""):
        self._cluster, self._signal_number, self._step, self._task = cluster, signal_number, step, task
        self.pids: list[int] = []

    def __call__(self, task: ClusterTask, progress: Progress) -> None:
        if not self.pids and progress.step > self._step and not progress.message:
            running = training_processes(self._cluster.server.pid)
            self.pids = [running[self._task]] if self._task else list(running.values())
            for pid in self.pids:
                os.kill(pid, self._signal_number)
