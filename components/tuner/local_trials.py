"""Shares this machine among the trials of a search that train at the same time."""

from collections.abc import Callable
from dataclasses import replace

from absl import logging

from tfx_distribute.components.launchers.local import gpus
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.trainer.places import Place
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask, replicas_of_roles, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.reporting.progress import Progress

# Trains a trial, given its job, its number, and a function that returns True if it has
# to end.
Launch = Callable[[TrainingJob, str, Callable[[], bool]], TrainingResult]


def announce(message: str) -> None:
    """Shows a message about the search in the terminal, and logs it."""
    logging.info(message)
    local_launcher.current_settings().on_progress(CHIEF_TASK, Progress("start", message=message))


def share_machine(place: Place, distribution: Distribution, num_parallel_trials: int) -> Launch:
    """Returns a function that launches a trial in a place, on GPUs of its own.

    `distribution` is of one trial. Raises a ConfigurationError if there are too few
    devices for so many trials.
    """
    if num_parallel_trials == 1 or place.is_remote:
        return place.launch
    settings = local_launcher.current_settings()
    free = _divide_gpus(distribution, num_parallel_trials)  # `pop` and `append` are safe in several threads

    def launch(job: TrainingJob, trial: str, is_stopped: Callable[[], bool]) -> TrainingResult:
        # A fork server serves one launch at a time, and lines of several trials would
        # be mixed.
        listener = _only_messages(settings.on_progress, f"trial {trial}")
        own = free.pop()
        try:
            with local_launcher.settings(replace(settings, server=None, on_progress=listener, gpus=own)):
                return place.launch(job, trial, is_stopped)
        finally:
            free.append(own)

    return launch


def _divide_gpus(distribution: Distribution, num_parallel_trials: int) -> list[tuple[str, ...] | None]:
    """Returns the GPUs of each of the trials that train at the same time.

    They are names for CUDA_VISIBLE_DEVICES; None leaves it unchanged.
    """
    own = local_launcher.current_settings().gpus
    available = tuple(gpus.list_visible()) if own is None else own
    roles = replicas_of_roles(distribution).items()
    processes = sum(count for role, count in roles if uses_accelerators(distribution, ClusterTask(role, 0)))
    needed = processes * max(distribution.accelerator_count, 1)
    uses_cpu = distribution.accelerator_type == "cpu"
    # If there are too few for a single trial, its own launch says so.
    if uses_cpu or needed > len(available):
        return [own] * num_parallel_trials
    each = len(available) // num_parallel_trials
    if each < needed:
        raise ConfigurationError(
            f"tune.num_parallel_trials: {num_parallel_trials} trials at the same time need {needed} GPUs each, and this "
            f"machine has {len(available)}; write {len(available) // needed}, or accelerator_type: cpu"
        )
    return [available[index * each : (index + 1) * each] for index in range(num_parallel_trials)]


def _only_messages(listener: local_launcher.ProgressListener, name: str) -> local_launcher.ProgressListener:
    """Returns a listener that passes on the messages of a trial, and no steps."""

    def listen(task: ClusterTask, progress: Progress) -> None:
        if progress.message:
            listener(task, Progress("start", message=f"{name}: {progress.message}"))

    return listen
