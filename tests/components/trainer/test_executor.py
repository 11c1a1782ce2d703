"""Tests the custom properties of the trained model."""

from dataclasses import replace

from tfx.types import standard_artifacts
from training import make_job

from tfx_distribute.components.trainer.executor import record
from tfx_distribute.trainer_module.job.time_use import ProcessTime, summarize
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    RunFn,
    TrainingOptions,
    TrainingResult,
    WarmStartResult,
)
from tfx_distribute.trainer_module.job.warm_start import WarmStart

JOB = make_job(
    distribution=Distribution("parameter_server", num_workers=3),
    training_options=TrainingOptions(16, epochs=2, gradient_accumulation_steps=1, precision="mixed_bfloat16"),
)
RESULT = TrainingResult(1, 16, 40, 2.5, {"loss": 0.5, "val_loss": float("nan")})


def test_how_a_model_was_trained_is_recorded_with_it():
    model = standard_artifacts.Model()
    record(model, JOB, RESULT)
    stored = {
        name: getattr(value, value.WhichOneof("value")) for name, value in model.mlmd_artifact.custom_properties.items()
    }
    assert stored == {
        "strategy": "parameter_server",
        "num_workers": 3,
        "num_parameter_servers": 1,
        "mesh": "",
        "num_replicas": 1,
        "per_replica_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "global_batch_size": 16,
        "train_steps": 40,
        "train_seconds": 2.5,
        "precision": "mixed_bfloat16",
        "keras_version": 2,
        "learning_rate_scaling": "none",
        "training_loss": 0.5,
    }


def test_base_model_is_recorded_with_the_model():
    model = standard_artifacts.Model()
    job = replace(JOB, base_model="/staged/base", warm_start=WarmStart(freeze=["dense", "norm"]))
    record(model, job, replace(RESULT, warm_start=WarmStartResult(weights_taken=4, weights_skipped=2)), "gs://models/1")
    assert model.get_string_custom_property("base_model") == "gs://models/1", "not the copy of it"
    assert model.get_int_custom_property("base_model_weights_taken") == 4
    assert model.get_int_custom_property("base_model_weights_skipped") == 2
    assert model.get_string_custom_property("freeze") == "dense; norm"
    assert not model.has_custom_property("base_model_entries_taken"), "no weight has rows of a vocabulary"

    job = replace(job, warm_start=WarmStart(vocabularies={"words": "words"}))
    record(model, job, replace(RESULT, warm_start=WarmStartResult(4, 2, 30, 5)))
    assert model.get_int_custom_property("base_model_entries_taken") == 30
    assert model.get_int_custom_property("base_model_entries_new") == 5


def test_where_time_went_is_recorded_with_the_model():
    processes = (ProcessTime("chief-0", {"compute": 1.0, "wait_for_peers": 3.0}), ProcessTime("worker-0", {"compute": 4.0}))
    model = standard_artifacts.Model()
    record(model, JOB, replace(RESULT, time_use=summarize(processes)))
    assert model.get_float_custom_property("time_compute") == 0.625
    assert model.get_float_custom_property("time_wait_for_peers") == 0.375
    assert model.get_float_custom_property("time_save") == 0.0
    assert model.get_string_custom_property("slowest_process") == "worker-0"
    assert model.get_float_custom_property("slowest_process_holds_back") == 0.75
    assert model.get_string_custom_property("slowest_process_reason") == "compute"


def test_settings_that_a_run_fn_ignores_are_not_recorded():
    model = standard_artifacts.Model()
    record(model, replace(JOB, run_fn=RunFn("", {}, None)), RESULT)
    assert model.get_string_custom_property("strategy") == "parameter_server"
    assert "global_batch_size" not in model.mlmd_artifact.custom_properties
