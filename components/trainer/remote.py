"""A training whose processes are the pods of a TFJob."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs

from tfx_distribute.components.launchers import staging, tfjob, tfjob_launcher
from tfx_distribute.components.trainer import request
from tfx_distribute.trainer_module import files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job import TrainingJob, TrainingResult

JOB_FILE = "job.json"


def train(
    inputs: dict[str, list[types.Artifact]],
    outputs: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
    settings: tfjob.TFJobSettings,
) -> tuple[TrainingJob, TrainingResult]:
    """Trains as a TFJob.

    Args:
      inputs: Input artifacts of the execution.
      outputs: Its output artifacts, which have a model after it.
      exec_properties: Its execution properties.
      settings: What the pods are.

    Returns:
      The job, and what came of it.

    Raises:
      ConfigurationError: It cannot be trained so.
      TrainingError: Training failed.
    """
    model_dir = artifact_utils.get_single_uri(outputs[standard_component_specs.MODEL_KEY])
    name = job_name(settings.name, model_dir)
    folder = os.path.join(settings.training_dir or os.path.join(os.path.dirname(model_dir), ".training"), name)
    if "://" in folder and not (exec_properties.get("build_model") or exec_properties.get("run_fn")):
        raise ConfigurationError(
            f"module_file: the pods of a TFJob cannot import from {folder}; have the image hold the module, and write "
            "build_model or run_fn with its dotted path"
        )
    with (
        _removed_at_last(folder),
        staging.staged(inputs, outputs, folder, is_shared=settings.training_dir is not None) as (shared_in, shared_out),
    ):
        job = request.training_job(shared_in, shared_out, exec_properties, folder)
        address = os.path.join(folder, JOB_FILE)
        files.write(address, job.to_json())
        if "://" not in address:
            os.chmod(address, 0o600)
        tfjob_launcher.run(
            tfjob.manifest(name, address, job.distribution, job.schedule.keras_version, settings, tfjob_launcher.owner()),
            job.recovery.max_restarts,
            settings.active_deadline_seconds,
        )
        result = files.read(job.outputs.result_file)
        if result is None:
            raise TrainingError(f"TFJob {name} has succeeded, and its chief has left no {job.outputs.result_file}")
        return job, TrainingResult.from_json(result)


@contextlib.contextmanager
def _removed_at_last(folder: str) -> Iterator[None]:
    fileio.makedirs(folder)
    try:
        yield
    finally:
        # Pods that are being removed may have files open; and a person wants the error of the training, not of the tidying.
        with contextlib.suppress(OSError, tf.errors.OpError):
            fileio.rmtree(folder)


def job_name(pipeline: str, model_dir: str) -> str:
    """Name of a TFJob: a DNS label that leaves room for those of pods; the same for each try of one step.

    Args:
      pipeline: Name of the pipeline.
      model_dir: Where the model will be, which no other execution shares.
    """
    prefix = pipeline if pipeline[:1].isalpha() else f"tfx-{pipeline}"
    return f"{prefix[:36].rstrip('-')}-{hashlib.sha256(model_dir.encode()).hexdigest()[:10]}"
