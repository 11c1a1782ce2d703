"""A training whose processes run on other machines: the pods of a TFJob, or the worker pools of a CustomJob."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_distribute.components.launchers.custom_job import spec as custom_job_spec
from tfx_distribute.components.launchers.settings import Settings
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.components.launchers.tfjob import manifest as tfjob_manifest
from tfx_distribute.components.trainer import job_builder as request_lib
from tfx_distribute.components.trainer import saved_state, staging
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingResult, keras_environment
from tfx_distribute.trainer_module.lifecycle import atomic_files, failure_report, lease

JOB_FILE = "job.json"
FOLLOWED = "followed.json"
ERROR = "error.json"
KEPT_SECONDS = 24 * 3600.0  # what a training has left in a folder that all trainings share; for another try of its step


def train(
    inputs: dict[str, list[types.Artifact]],
    outputs: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
    settings: Settings,
) -> tuple[TrainingJob, TrainingResult]:
    """Trains on other machines.

    Another try of the same step takes up what the one before has left: a training that goes on, or one that is done.

    Args:
      inputs: Input artifacts of the execution.
      outputs: Its output artifacts, which have a model after it.
      exec_properties: Its execution properties.
      settings: Where training runs.

    Returns:
      The job, and what came of it.

    Raises:
      ConfigurationError: It cannot be trained so.
      TrainingError: Training failed.
    """
    model_dir = artifact_utils.get_single_uri(outputs[standard_component_specs.MODEL_KEY])
    name = job_name(settings.name, model_dir)
    shared = settings.training_dir if isinstance(settings, tfjob_manifest.TFJobSettings) else None
    root = shared or os.path.join(os.path.dirname(model_dir), ".training")
    folder = os.path.join(root, name)
    if "://" in folder and not (exec_properties.get("build_model") or exec_properties.get("run_fn")):
        raise ConfigurationError(
            f"module_file: other machines cannot import from {folder}; have the image hold the module, and write "
            "build_model or run_fn with its dotted path"
        )
    _sweep(root)
    with (
        terminable(),
        _kept_when_done(folder),
        _followed(os.path.join(folder, FOLLOWED)) as followed,
        staging.staged(inputs, outputs, folder, is_shared=shared is not None) as moved,
    ):
        job = request_lib.training_job(moved.inputs, moved.outputs, exec_properties, folder, moved.addresses)
        address = os.path.join(folder, JOB_FILE)
        atomic_files.write(address, job.to_json())
        if "://" not in address:
            os.chmod(address, 0o600)
        done = fileio.exists(job.outputs.result_file)
        environment = {**keras_environment(job.schedule.keras_version), lease.LEASE_FILE: followed}
        with saved_state.owned(job.outputs):
            _launch(settings, name, address, environment, job, anew=not done)
        result = atomic_files.read(job.outputs.result_file)
        if result is None:
            raise TrainingError(f"training {name} has succeeded, and its chief has left no {job.outputs.result_file}")
    return job, TrainingResult.from_json(result)


def _launch(
    settings: Settings, name: str, address: str, environment: Mapping[str, str], job: TrainingJob, anew: bool
) -> None:
    """Has the processes run, to their end; their clients take time to import."""
    restarts = job.recovery.max_restarts
    if isinstance(settings, tfjob_manifest.TFJobSettings):
        from tfx_distribute.components.launchers.tfjob import launcher as tfjob_launcher

        owner = tfjob_launcher.owner()
        manifest = tfjob_manifest.make_manifest(name, address, job.distribution, environment, settings, owner)
        tfjob_launcher.launch(manifest, restarts, settings.active_deadline_seconds, rerun=anew)
        return
    from tfx_distribute.components.launchers.custom_job import launcher as custom_job_launcher

    error_file = os.path.join(os.path.dirname(address), ERROR)
    environment = {**environment, failure_report.ERROR_FILE: error_file}
    spec = custom_job_spec.make_spec(name, address, job.distribution, environment, settings)
    custom_job_launcher.launch(spec, settings, restarts, error_file, rerun=anew)


@contextlib.contextmanager
def _kept_when_done(folder: str) -> Iterator[None]:
    """Leaves what a training that is done has made, but no copies of what it read; all else goes."""
    fileio.makedirs(folder)
    left = folder
    try:
        yield
        left = os.path.join(folder, staging.INPUTS)
    finally:
        # Pods that are being removed may have files open; and a person wants the error of the training, not of the tidying.
        with contextlib.suppress(OSError, tf.errors.OpError):
            if fileio.exists(left):
                fileio.rmtree(left)


@contextlib.contextmanager
def _followed(path: str) -> Iterator[str]:
    """Tells the chief that somebody follows, within the block. Yields where."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(lease.RENEW_SECONDS):
            with contextlib.suppress(OSError, tf.errors.OpError):  # the next one may get through
                lease.renew(path)

    lease.renew(path)
    threading.Thread(target=tell, daemon=True, name="followed").start()
    try:
        yield path
    finally:
        ended.set()


def _sweep(root: str) -> None:
    """Removes what trainings have left that ended, or were given up, long ago."""
    for name in fileio.listdir(root) if fileio.isdir(root) else ():
        folder = os.path.join(root, name)
        last = lease.last_renewal(os.path.join(folder, FOLLOWED))
        if last is not None and time.time() - last > KEPT_SECONDS:
            logging.info("removing %s, which nobody has followed for a day", folder)
            with contextlib.suppress(OSError, tf.errors.OpError):  # another step sweeps too
                fileio.rmtree(folder)


def job_name(pipeline: str, model_dir: str) -> str:
    """Name of a training: a DNS label that leaves room for those of pods; the same for each try of one step.

    Args:
      pipeline: Name of the pipeline.
      model_dir: Where the model will be, which no other execution shares.
    """
    prefix = pipeline if pipeline[:1].isalpha() else f"tfx-{pipeline}"
    return f"{prefix[:36].rstrip('-')}-{hashlib.sha256(model_dir.encode()).hexdigest()[:10]}"
