"""Trains on other machines: in pods of Kubernetes, or a CustomJob's worker pools."""

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from absl import logging
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import registry, storage
from tfx_distribute.components.launchers.errors import NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.launcher import LauncherSettings, Limits, Training, follow
from tfx_distribute.components.launchers.restarts import Restarts
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.trainer import job_builder, saved_state, staging
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import (
    ConfigurationError,
    TfxDistributeError,
    TrainingError,
)
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingResult, keras_environment
from tfx_distribute.trainer_module.liveness import lease
from tfx_distribute.trainer_module.state import saved_step

JOB_FILE = "job.json"
LEASE_FILE = "followed.json"


def train(
    inputs: dict[str, list[types.Artifact]],
    outputs: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
    parameters: job_builder.TrainingParameters,
    settings: LauncherSettings,
) -> tuple[TrainingJob, TrainingResult]:
    """Trains on other machines.

    A retry of the same pipeline step takes over the training of the previous attempt,
    whether it is still running or done. The model is written to the `outputs`.

    Raises:
      ConfigurationError: The job cannot be trained as configured.
      TrainingError: Training failed.
    """
    model_dir = artifact_utils.get_single_uri(outputs[standard_component_specs.MODEL_KEY])
    with training_folder(inputs, outputs, exec_properties, settings, model_dir) as training:
        staged = training.staged
        job = job_builder.build_job(
            staged.inputs, staged.outputs, exec_properties, parameters, training.folder, staged.addresses
        )
        with saved_state.owned(job.outputs):
            result = launch(job, training, training.name, training.folder, training.is_lost)
            # Within the block: the saved state stays if the model cannot be copied.
            staged.copy_back()
        return job, result


@dataclass(frozen=True)
class TrainingFolder:
    """A folder that the processes of remote trainings can reach.

    Attributes:
      name: Name of the training; see `job_name`.
      lease_file: The lease of the step that follows the training; each of several
        trainings has its own, in its folder.
      is_lost: Returns True if another attempt of the step uses the folder by now.
    """

    name: str
    folder: str
    lease_file: str
    staged: staging.Staged
    settings: LauncherSettings
    is_lost: Callable[[], bool]


@contextlib.contextmanager
def training_folder(
    inputs: staging.Artifacts,
    outputs: staging.Artifacts,
    exec_properties: Mapping[str, Any],
    settings: LauncherSettings,
    output_dir: str,
) -> Iterator[TrainingFolder]:
    """Keeps a folder for trainings on other machines within the block.

    `outputs` are those that trainings write. `output_dir` is the folder of one of the
    output artifacts, unique to the execution.

    Raises:
      ConfigurationError: Other machines cannot reach what the trainings need.
    """
    name = job_name(settings.name, output_dir)
    root = settings.training_dir or os.path.join(os.path.dirname(output_dir), ".training")
    folder = os.path.join(root, name)
    if "://" in folder and not (exec_properties.get("build_model") or exec_properties.get("run_fn")):
        raise ConfigurationError(
            f"module_file: other machines cannot import from {folder}; have the image hold the module, and write "
            "build_model or run_fn with its dotted path"
        )
    lease_file = os.path.join(folder, LEASE_FILE)
    own_lease = lease.Lease(lease_file)
    make_folder(folder)
    is_retry = storage.call(lease_file, lambda: fileio.exists(lease_file))
    with terminable(), _cleaning_up(folder, own_lease, is_retry), holding(own_lease) as is_lost:
        _remove_abandoned(root)
        staged = staging.stage(inputs, outputs, folder, is_shared=settings.training_dir is not None)
        yield TrainingFolder(name, folder, lease_file, staged, settings, is_lost)


def launch(
    job: TrainingJob,
    training: TrainingFolder,
    name: str,
    folder: str,
    is_lost: Callable[[], bool],
    is_stopped: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Trains on other machines, unless an earlier attempt has left result and model.

    If processes of that attempt are still running, waits for their end: they may still
    write to the outputs. `folder`, in that of `training`, is for the job document.
    `is_lost` returns True if another attempt follows the training by now, `is_stopped`
    if it has to end.

    Raises:
      ConfigurationError: The job cannot be trained as configured.
      TrainingError: Training failed.
    """
    address = os.path.join(folder, JOB_FILE)
    storage.call(address, lambda: atomic_files.write(address, job.to_json()))
    if "://" not in address:
        with contextlib.suppress(PermissionError):  # on volumes whose files all belong to somebody else, as with SMB
            os.chmod(address, 0o600)
    result_file = job.outputs.result_file
    # The chief writes the result last, when the model is complete.
    needed = [result_file, *filter(None, [job.outputs.serving_model_dir])]
    has_result = storage.call(result_file, lambda: all(map(fileio.exists, needed)))
    if has_result:
        logging.info("an earlier attempt of this step has left the result of %s: nothing is trained again", name)
    environment = {**keras_environment(job.training_options.keras_version), lease.LEASE_VARIABLE: training.lease_file}
    max_restarts, settings = job.fault_tolerance.max_restarts, training.settings
    launcher = registry.make(settings)
    request = launcher.request(Training(name, address, job.distribution, environment, max_restarts))
    restarts = Restarts(max_restarts, functools.partial(saved_step.read, job.outputs.checkpoint_dir))
    limits = Limits(restarts, settings.start_timeout_seconds, settings.active_deadline_seconds or 0.0, is_lost, is_stopped)
    follow(launcher, request, limits, has_result)
    result = storage.call(result_file, lambda: atomic_files.read(result_file))
    if result is None:
        raise TrainingError(f"training {name} succeeded, but its chief did not write {result_file}")
    return TrainingResult.from_json(result)


def make_folder(folder: str) -> None:
    """Creates the training's folder; raises a ConfigurationError if refused."""
    if "://" in folder:
        fileio.makedirs(folder)
        return
    with contextlib.suppress(PermissionError):
        os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(
            f"targets.kubeflow.training_dir: this step may not write to {os.path.dirname(folder)}; have the volume's folder "
            f"belong to user {os.getuid()} or group {os.getgid()}, as which the step runs, or write another run_as_user or "
            "run_as_group in targets.kubeflow.security_context"
        )


@contextlib.contextmanager
def _cleaning_up(folder: str, own_lease: lease.Lease, is_retry: bool) -> Iterator[None]:
    """Removes what no retry of the step needs from the training's folder.

    Removes nothing if another attempt of the step uses the folder by then.
    """
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        # Pods that are being removed may hold files open, and an error here must not
        # hide that of the training.
        with contextlib.suppress(OSError, tf.errors.OpError):
            unneeded_folder = _find_unneeded(folder, error, is_retry)
            if unneeded_folder and fileio.exists(unneeded_folder) and not own_lease.is_lost():
                fileio.rmtree(unneeded_folder)


def _find_unneeded(folder: str, error: BaseException | None, is_retry: bool) -> str | None:
    """Returns what to remove of a training's folder.

    That is the whole folder after a training that failed by itself, or that had no room
    for its lease. It is nothing if the training was interrupted, or if a retry was
    refused before it took over: the training may go on, and until then it may read its
    inputs. Otherwise, it is the copies of inputs: a retry takes the result and the
    model.
    """
    is_interrupted = error is not None and not isinstance(error, Exception)  # by a signal
    # Such as by the lock of the saved state.
    is_refused = is_retry and isinstance(error, ConfigurationError | NoRoomError)
    if is_interrupted or is_refused or isinstance(error, NotFollowedError):
        return None
    has_failed = isinstance(error, TfxDistributeError) and not fileio.exists(os.path.join(folder, job_builder.RESULT_FILE))
    has_begun = fileio.exists(os.path.join(folder, LEASE_FILE))
    return folder if has_failed or not has_begun else os.path.join(folder, staging.INPUTS)


@contextlib.contextmanager
def holding(own_lease: lease.Lease) -> Iterator[Callable[[], bool]]:
    """Holds a lease within the block; when it expires, the chief stops.

    The lease is taken from whoever has it. Yields a function that returns True if
    another attempt has taken it since.
    """
    has_ended, is_lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not has_ended.wait(timeouts.LEASE_RENEW_SECONDS):
            try:
                own_lease.renew()
                if own_lease.is_lost():
                    is_lost.set()
                    return
            except (OSError, tf.errors.OpError) as error:  # the next renewal may succeed
                logging.warning("cannot renew the lease of the training: %s", error)

    storage.call(own_lease.path, own_lease.take)
    renewal = threading.Thread(target=renew, daemon=True, name="lease-renewal")
    renewal.start()
    try:
        yield is_lost.is_set
    finally:
        has_ended.set()
        renewal.join(timeouts.LAST_RENEWAL_SECONDS)  # it might create a folder that is removed next


def _remove_abandoned(root: str) -> None:
    """Removes the folders of trainings whose lease ended more than a day ago."""
    for name in fileio.listdir(root) if fileio.isdir(root) else ():
        folder = os.path.join(root, name)
        # It may be another user's, and another step may remove it too.
        with contextlib.suppress(OSError, tf.errors.OpError):
            last_renewal = lease.last_renewal(os.path.join(folder, LEASE_FILE))
            if last_renewal is not None and time.time() - last_renewal > timeouts.KEPT_SECONDS:
                logging.info("removing %s, which nobody has followed for a day", folder)
                fileio.rmtree(folder)


def job_name(pipeline: str, model_dir: str) -> str:
    """Returns the name of a training job, the same for each attempt of a step.

    It is a DNS label, short enough to leave room for the suffixes of pods. `model_dir`
    is unique to the execution.
    """
    prefix = pipeline if pipeline[:1].isalpha() else f"tfx-{pipeline}"
    return f"{prefix[:32].rstrip('-')}-{hashlib.sha256(model_dir.encode()).hexdigest()[:10]}"
