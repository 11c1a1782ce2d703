"""Opens the place where a component trains: its own step, or other machines."""

import contextlib
import functools
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from absl import logging
from tfx.dsl.io import fileio

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import registry, storage
from tfx_distribute.components.launchers.errors import NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.launcher import LauncherSettings, Limits, Restarts, Training, follow
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.trainer import job_builder, run_identity, staging
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TfxDistributeError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingJob, TrainingResult, keras_environment
from tfx_distribute.trainer_module.liveness import lease
from tfx_distribute.trainer_module.state import saved_step

JOB_FILE = "job.json"
LEASE_FILE = "followed.json"


@dataclass(frozen=True)
class Place:
    """The component's own step, as the place in which its trainings run.

    Attributes:
      staged: The component's artifacts, as training processes find them.
      folder: A folder that all of them can reach, which lives as long as the trainings.
    """

    staged: staging.Staged
    folder: str
    is_remote: ClassVar[bool] = False

    def launch(self, job: TrainingJob, trial: str = "", is_stopped: Callable[[], bool] = lambda: False) -> TrainingResult:
        """Trains a job and returns its result; trials may be launched in threads.

        `trial` is the number of a trial of a search, empty for another training; its
        `result_file` is set here. `is_stopped` returns True if the training has to end.
        """
        if not trial:
            return local_launcher.launch(job, self.folder, is_stopped)
        settings = local_launcher.current_settings()
        log_dir = settings.log_dir and settings.log_dir / f"trial-{trial}"
        with (
            tempfile.TemporaryDirectory(prefix=f"trial-{trial}-", dir=self.folder) as folder,
            local_launcher.settings(replace(settings, log_dir=log_dir)),
        ):
            return local_launcher.launch(_with_result_in(folder, job), folder, is_stopped)


@dataclass(frozen=True)
class RemotePlace(Place):
    """Other machines, on which a retry of the step takes over an earlier training.

    Attributes:
      is_lost: Returns True if another attempt of the step uses the folder by now.
    """

    settings: LauncherSettings
    is_lost: Callable[[], bool]
    is_remote = True

    def launch(self, job: TrainingJob, trial: str = "", is_stopped: Callable[[], bool] = lambda: False) -> TrainingResult:
        """Trains a job, unless an earlier attempt has left its result and model.

        If processes of that attempt are still running, waits for their end: they may
        still write to the outputs.
        """
        folder, name = self.folder, os.path.basename(self.folder)
        if trial:
            # The values are in the name: a search that starts again may give its trials
            # others, and must not take over the results of earlier ones.
            values = [job.hparams, job.training_options.epochs or job.training_options.train_steps]
            folder = os.path.join(folder, f"trial-{trial}-{run_identity.fingerprint_of(values)[:8]}")
            name = job_name(self.settings.name, folder)
            _make_folder(folder)
            job = _with_result_in(folder, job)
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
        keras = keras_environment(job.training_options.keras_version)
        environment = {**keras, lease.LEASE_VARIABLE: os.path.join(self.folder, LEASE_FILE)}
        max_restarts, settings = job.fault_tolerance.max_restarts, self.settings
        launcher = registry.make(settings)
        request = launcher.request(Training(name, address, job.distribution, environment, max_restarts))
        restarts = Restarts(max_restarts, functools.partial(saved_step.read, job.outputs.checkpoint_dir))
        deadline = settings.active_deadline_seconds or 0.0
        limits = Limits(restarts, settings.start_timeout_seconds, deadline, self.is_lost, is_stopped)
        follow(launcher, request, limits, has_result)
        result = storage.call(result_file, lambda: atomic_files.read(result_file))
        if result is None:
            raise TrainingError(f"training {name} succeeded, but its chief did not write {result_file}")
        return TrainingResult.from_json(result)


def _with_result_in(folder: str, job: TrainingJob) -> TrainingJob:
    return replace(job, outputs=replace(job.outputs, result_file=os.path.join(folder, job_builder.RESULT_FILE)))


@contextlib.contextmanager
def open_place(
    inputs: staging.Artifacts,
    outputs: staging.Artifacts,
    exec_properties: Mapping[str, Any],
    distribution: Distribution,
    output_dir: str,
) -> Iterator[Place]:
    """Keeps what the trainings of a component need within the block.

    `outputs` are those that trainings write. `output_dir` is the folder of one of the
    output artifacts, unique to the execution.
    """
    launcher = exec_properties.get("launcher")
    settings = registry.from_json(launcher) if launcher else None
    if not (settings and settings.runs_remotely(distribution)):
        # Only its owner can read the folder, as the job documents in it require.
        with terminable(), tempfile.TemporaryDirectory(prefix="tfx-distribute-") as folder:
            yield Place(staging.Staged(inputs, outputs, {}), folder)
        return
    root = settings.training_dir or os.path.join(os.path.dirname(output_dir), ".training")
    folder = os.path.join(root, job_name(settings.name, output_dir))
    if "://" in folder and not (exec_properties.get("build_model") or exec_properties.get("run_fn")):
        raise ConfigurationError(
            f"module_file: other machines cannot import from {folder}; have the image hold the module, and write "
            "build_model or run_fn with its dotted path"
        )
    lease_file = os.path.join(folder, LEASE_FILE)
    own_lease = lease.Lease(lease_file)
    _make_folder(folder)
    is_retry = storage.call(lease_file, lambda: fileio.exists(lease_file))
    with terminable(), _cleaning_up(folder, own_lease, is_retry), _holding(own_lease) as is_lost:
        _remove_abandoned(root)
        staged = staging.stage(inputs, outputs, folder, is_shared=settings.training_dir is not None)
        yield RemotePlace(staged, folder, settings, is_lost)


def _make_folder(folder: str) -> None:
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

    That is the whole folder after a training that failed by itself, and otherwise the
    copies of inputs: a retry takes the result and the model. It is nothing after an
    interrupt, if a retry was refused before it took over, or if another attempt uses
    the folder by now: the training may go on, and read its inputs.
    """
    inputs, result = os.path.join(folder, staging.INPUTS), os.path.join(folder, job_builder.RESULT_FILE)
    unneeded = ""
    try:
        yield
        unneeded = inputs
    except TfxDistributeError as error:
        # Such as by the lock of the saved state.
        is_refused = is_retry and isinstance(error, ConfigurationError | NoRoomError)
        if not (is_refused or isinstance(error, NotFollowedError)):
            unneeded = folder
        raise
    finally:
        # Pods that are being removed may hold files open, and an error here must not
        # hide that of the training.
        with contextlib.suppress(*storage.ERRORS):
            if unneeded == folder and fileio.exists(result):
                unneeded = inputs
            if unneeded and fileio.exists(unneeded) and not own_lease.is_lost():
                fileio.rmtree(unneeded)


@contextlib.contextmanager
def _holding(own_lease: lease.Lease) -> Iterator[Callable[[], bool]]:
    """Takes a lease and renews it within the block; when it expires, the chief stops.

    Yields a function that returns True if another attempt has taken it since.
    """
    has_ended, is_lost = threading.Event(), threading.Event()

    def renew() -> None:
        while not has_ended.wait(timeouts.LEASE_RENEW_SECONDS):
            try:
                own_lease.renew()
                if own_lease.is_lost():
                    is_lost.set()
                    return
            except storage.ERRORS as error:  # the next renewal may succeed
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
        with contextlib.suppress(*storage.ERRORS):
            last_renewal = lease.last_renewal(os.path.join(folder, LEASE_FILE))
            if last_renewal is not None and time.time() - last_renewal > timeouts.KEPT_SECONDS:
                logging.info("removing %s, which nobody has followed for a day", folder)
                fileio.rmtree(folder)


def job_name(pipeline: str, folder: str) -> str:
    """Returns the name of a training, given a folder that is unique to it.

    It is a DNS label, short enough to leave room for the suffixes of pods.
    """
    prefix = pipeline if pipeline[:1].isalpha() else f"tfx-{pipeline}"
    return f"{prefix[:32].rstrip('-')}-{hashlib.sha256(folder.encode()).hexdigest()[:10]}"
