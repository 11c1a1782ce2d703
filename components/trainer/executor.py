"""Makes the training job, launches it, and records the result with the model."""

import math
from typing import Any

from absl import logging
from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import path_utils

from tfx_distribute.components.trainer import job_builder, places, run_identity
from tfx_distribute.components.trainer.staging import Artifacts
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.time_use import ACTIVITIES
from tfx_distribute.trainer_module.job.training_job import TrainingJob, TrainingResult


class Executor(base_executor.BaseExecutor):
    """Trains in separate processes, on this machine or on others."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX)
        """Trains and exports a model."""
        self._log_startup(input_dict, output_dict, exec_properties)
        parameters = job_builder.training_parameters(exec_properties)
        model = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_KEY])
        with places.open_place(input_dict, output_dict, exec_properties, parameters.distribution, model.uri) as place:
            job = job_builder.build_job(place.staged, exec_properties, parameters, place.folder)
            with run_identity.reserve_state(job.outputs):
                result = place.launch(job)
                # Within the block: the saved state stays if the model cannot be copied.
                place.staged.copy_back()
        if result.unusable:
            raise TrainingError(result.unusable)
        serving_model_dir = path_utils.serving_model_dir(model.uri)
        if not fileio.exists(serving_model_dir):
            raise TrainingError(f"training ended without a model in {serving_model_dir}")
        base_model = input_dict.get(standard_component_specs.BASE_MODEL_KEY)
        record(model, job, result, artifact_utils.get_single_uri(base_model) if base_model else "")
        logging.info("Trained %s: %s", serving_model_dir, result)


def record(model: types.Artifact, job: TrainingJob, result: TrainingResult, base_model: str = "") -> None:
    """Records how a model was trained in its custom properties, for ML Metadata."""
    model.set_string_custom_property("strategy", job.distribution.strategy)
    model.set_int_custom_property("num_workers", job.distribution.num_workers)
    model.set_int_custom_property("num_parameter_servers", strategy_table.num_parameter_servers(job.distribution))
    model.set_string_custom_property("mesh", job.distribution.mesh)
    model.set_int_custom_property("num_replicas", result.num_replicas)
    if job.run_fn is not None:
        return  # a run_fn ignores the other settings
    model.set_int_custom_property("per_replica_batch_size", job.training_options.per_replica_batch_size)
    model.set_int_custom_property("global_batch_size", result.global_batch_size)
    model.set_int_custom_property("train_steps", result.train_steps)
    model.set_int_custom_property("gradient_accumulation_steps", job.training_options.gradient_accumulation_steps)
    model.set_int_custom_property("keras_version", job.training_options.keras_version)
    model.set_string_custom_property("precision", job.training_options.precision)
    model.set_string_custom_property("learning_rate_scaling", job.training_options.learning_rate_scaling)
    if result.best:
        model.set_int_custom_property("exported_epoch", result.best.epoch)
        model.set_int_custom_property("exported_step", result.best.step)
        for name, value in result.best.metrics.items():
            model.set_float_custom_property(f"exported_{name}", value)
    if result.warm_start:
        model.set_string_custom_property("base_model", base_model)
        model.set_int_custom_property("base_model_weights_taken", result.warm_start.weights_taken)
        model.set_int_custom_property("base_model_weights_skipped", result.warm_start.weights_skipped)
        if job.warm_start.vocabularies:
            model.set_int_custom_property("base_model_entries_taken", result.warm_start.entries_taken)
            model.set_int_custom_property("base_model_entries_new", result.warm_start.entries_new)
        if job.warm_start.freeze:
            model.set_string_custom_property("freeze", "; ".join(job.warm_start.freeze))
    model.set_float_custom_property("train_seconds", result.seconds)
    if time_use := result.time_use:
        for activity in ACTIVITIES:
            model.set_float_custom_property(f"time_{activity}", time_use.share(activity))
        if time_use.slowest:
            model.set_string_custom_property("slowest_process", time_use.slowest)
            model.set_float_custom_property("slowest_process_holds_back", time_use.held_back)
            model.set_string_custom_property("slowest_process_reason", time_use.reason)
    for name, value in result.metrics.items():
        if math.isfinite(value):  # ML Metadata cannot store other values
            model.set_float_custom_property(f"training_{name}", value)
