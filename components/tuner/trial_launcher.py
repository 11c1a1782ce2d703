"""Launches the trials of a search, on this machine or on others."""

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from absl import logging

from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.local import gpus
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.trainer import job_builder, remote_training
from tfx_distribute.components.trainer.staging import Artifacts
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask, replicas_of_roles, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.liveness import lease
from tfx_distribute.trainer_module.reporting.progress import Progress

# Trains the job of the trial with a number.
Launch = Callable[[TrainingJob, str], TrainingResult]


@dataclass(frozen=True)
class TrialLauncher:
    """Trains the trials of a search, on this machine or on others.

    Attributes:
      inputs: Input artifacts, as the training processes find them.
      addresses: Folder of an artifact's copy -> folder of the artifact.
      folder: A folder that lives as long as the search.
      launch: Trains a job; may be called in several threads.
      stop: Ends what is being launched, as a signal would, at its next look at it.
    """

    inputs: Artifacts
    addresses: Mapping[str, str]
    folder: str
    launch: Launch
    stop: Callable[[], None]


@contextlib.contextmanager
def trial_launcher(
    inputs: Artifacts,
    exec_properties: Mapping[str, Any],
    distribution: Distribution,
    output_dir: str,
    num_parallel_trials: int,
) -> Iterator[TrialLauncher]:
    """Keeps what launching trials needs within the block.

    `distribution` is of one trial. `output_dir` is the folder of one of the output
    artifacts, unique to the execution.

    Raises:
      ConfigurationError: Trials cannot be trained as configured.
    """
    stopped = threading.Event()
    launcher = exec_properties.get("launcher")
    settings = registry.from_json(launcher) if launcher else None
    if settings and settings.runs_remotely(distribution):
        with remote_training.training_folder(inputs, {}, exec_properties, settings, output_dir) as training:
            launch = _remote_launch(training, stopped.is_set)
            staged = training.staged
            yield TrialLauncher(staged.inputs, staged.addresses, training.folder, launch, stopped.set)
        return
    gpus_of_trials = _divide_gpus(distribution, num_parallel_trials)
    # Only its owner can read the folder, as the job documents in it require.
    with terminable(), tempfile.TemporaryDirectory(prefix="tfx-distribute-") as folder:
        launch = _local_launch(folder, gpus_of_trials, stopped.is_set)
        yield TrialLauncher(inputs, {}, folder, launch, stopped.set)


def announce(message: str) -> None:
    """Shows a message about the search in the terminal, and logs it."""
    logging.info(message)
    local_launcher.current_settings().on_progress(CHIEF_TASK, Progress("start", message=message))


def _remote_launch(training: remote_training.TrainingFolder, is_stopped: Callable[[], bool]) -> Launch:
    def launch(job: TrainingJob, trial: str) -> TrainingResult:
        # The values are in the name: a search that starts again may give its trials
        # others, and must not take over the results of earlier ones.
        options = job.training_options
        tried = json.dumps([job.hparams, options.epochs or options.train_steps], sort_keys=True)
        folder = os.path.join(training.folder, f"trial-{trial}-{hashlib.sha256(tried.encode()).hexdigest()[:8]}")
        result_file = os.path.join(folder, job_builder.RESULT_FILE)
        name = remote_training.job_name(training.settings.name, folder)
        remote_training.make_folder(folder)
        # A lease of its own: a trial that was given up, and whose job could not be
        # deleted, ends although the search goes on.
        followed = replace(training, lease_file=os.path.join(folder, remote_training.LEASE_FILE))
        with remote_training.holding(lease.Lease(followed.lease_file)) as has_lost:
            job = _with_result_file(job, result_file)
            return remote_training.launch(job, followed, name, folder, lambda: has_lost() or training.is_lost(), is_stopped)

    return launch


def _divide_gpus(distribution: Distribution, num_parallel_trials: int) -> list[tuple[str, ...] | None]:
    """Returns the GPUs of each of the trials that train at the same time.

    They are names for CUDA_VISIBLE_DEVICES; None leaves it unchanged. Raises a
    ConfigurationError if there are too few.
    """
    own = local_launcher.current_settings().gpus
    available = tuple(gpus.list_visible()) if own is None else own
    if distribution.strategy == "tpu" and num_parallel_trials > 1:
        raise ConfigurationError(
            "tune.num_parallel_trials: trials at the same time cannot share this machine's TPU; write 1"
        )
    roles = replicas_of_roles(distribution).items()
    processes = sum(count for role, count in roles if uses_accelerators(distribution, ClusterTask(role, 0)))
    needed = processes * max(distribution.accelerator_count, 1)
    uses_cpu = distribution.accelerator_type == "cpu"
    # If there are too few for a single trial, its own launch says so.
    if num_parallel_trials == 1 or uses_cpu or needed > len(available):
        return [own] * num_parallel_trials
    each = len(available) // num_parallel_trials
    if each < needed:
        raise ConfigurationError(
            f"tune.num_parallel_trials: {num_parallel_trials} trials at the same time need {needed} GPUs each, and this "
            f"machine has {len(available)}; write {len(available) // needed}, or accelerator_type: cpu"
        )
    return [available[index * each : (index + 1) * each] for index in range(num_parallel_trials)]


def _local_launch(folder: str, gpus_of_trials: list[tuple[str, ...] | None], is_stopped: Callable[[], bool]) -> Launch:
    """Returns a function that trains on this machine, with job files in `folder`."""
    settings, alone = local_launcher.current_settings(), len(gpus_of_trials) == 1
    free = list(gpus_of_trials)  # `pop` and `append` are safe in several threads

    def launch(job: TrainingJob, trial: str) -> TrainingResult:
        trial_settings = replace(settings, log_dir=settings.log_dir and settings.log_dir / f"trial-{trial}")
        if not alone:
            # A fork server serves one launch at a time, and lines of several trials
            # would be mixed.
            trial_settings = replace(
                trial_settings, server=None, on_progress=_only_messages(settings.on_progress, f"trial {trial}")
            )
        own = free.pop()
        try:
            with (
                tempfile.TemporaryDirectory(prefix=f"trial-{trial}-", dir=folder) as work_dir,
                local_launcher.settings(replace(trial_settings, gpus=own)),
            ):
                job = _with_result_file(job, os.path.join(work_dir, job_builder.RESULT_FILE))
                return local_launcher.launch(job, work_dir, is_stopped)
        finally:
            free.append(own)

    return launch


def _with_result_file(job: TrainingJob, path: str) -> TrainingJob:
    return replace(job, outputs=replace(job.outputs, result_file=path))


def _only_messages(listener: local_launcher.ProgressListener, name: str) -> local_launcher.ProgressListener:
    """Returns a listener that passes on the messages of a trial, and no steps."""

    def listen(task: ClusterTask, progress: Progress) -> None:
        if progress.message:
            listener(task, Progress("start", message=f"{name}: {progress.message}"))

    return listen
