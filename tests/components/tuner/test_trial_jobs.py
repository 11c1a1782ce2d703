"""Tests the job of a trial against that of all trials."""

from dataclasses import replace

from tfx_distribute.components.tuner.trial_jobs import TrialPlan, make_job
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    TrainingJob,
    TrainingOptions,
    UserModule,
)

SHARED = TrainingJob(
    module=UserModule("model.build_model"),
    data=None,
    distribution=Distribution("mirrored"),
    training_options=TrainingOptions(16, epochs=9),
    outputs=Outputs("", "", ""),
    hparams={"rate": 0.1, "kind": "relu"},
)


def test_trial_of_the_common_length():
    plan = TrialPlan("3", "3", {"rate": 0.5}, epochs=0, continues="", first="3")
    assert make_job(SHARED, plan, "/search") == replace(
        SHARED,
        hparams={"rate": 0.5, "kind": "relu"},
        outputs=Outputs("", "/search/trial-3/logs", "", checkpoint_dir="/search/trial-3/state", saves_end=False),
    )


def test_trial_that_continues_another():
    plan = TrialPlan("7", "0007", {"rate": 0.5}, epochs=3, continues="5", first="2")
    job = make_job(SHARED, plan, "/search")
    assert job.training_options == TrainingOptions(16, epochs=3)
    assert job.outputs == Outputs("", "/search/trial-7/logs", "", checkpoint_dir="/search/trial-2/state", saves_end=True)


def test_epochs_of_a_number_of_steps():
    shared = replace(SHARED, training_options=TrainingOptions(16, train_steps=900, steps_per_epoch=100))
    job = make_job(shared, TrialPlan("0", "0000", {"rate": 0.5}, epochs=3, continues="", first="0"), "/search")
    assert job.training_options == TrainingOptions(16, train_steps=300, steps_per_epoch=100)
