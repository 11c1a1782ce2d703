import json
import math
from dataclasses import replace

import pytest
from pydantic import ValidationError

from tfx_distribute import __version__
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import (
    BestEvaluation,
    Distribution,
    Outputs,
    RunFn,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    TrainingResult,
    UserModule,
)

JOB = TrainingJob(
    module=UserModule("model.build_model", ("/code",)),
    data=TrainingData(Split(("/a/*", "/b/*"), 10), Split(("/c/*",), 3), "label", "/graph", None),
    distribution=Distribution("multi_worker_mirrored", 2, all_reduce="ring"),
    training_options=TrainingOptions(16, epochs=3, precision="mixed_bfloat16"),
    outputs=Outputs("/model", "/run", "/result"),
    hparams={"units": 3, "rate": 0.5, "kind": "wide", "deep": True},
    run_fn=RunFn("{}", {"train_args": "{}"}, {"values": {"units": 3}}),
)


def test_job_survives_its_document():
    assert TrainingJob.from_json(JOB.to_json()) == JOB


def test_other_documents_are_refused():
    with pytest.raises(ValidationError):
        TrainingJob.from_json(json.dumps({"module": {"function": "f"}, "version": __version__}))


@pytest.mark.parametrize("version", ["0.0.9", None])
def test_documents_of_another_version_are_refused(version):
    document = {**json.loads(JOB.to_json()), "version": version}
    with pytest.raises(ConfigurationError, match=rf"has tfx-distribute {__version__}, but .* has {version or 'another'}; "):
        TrainingJob.from_json(json.dumps(document))


def test_result_survives_its_document():
    """Also with a loss that is not a number, or infinite."""
    result = TrainingResult(1, 1, 1, 1.0, {"loss": math.nan, "other": math.inf, "third": 0.25})
    assert repr(TrainingResult.from_json(result.to_json())) == repr(result)


@pytest.mark.parametrize("name", ["loss", "val_loss"])
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_model_whose_last_loss_is_not_finite_is_unusable(name, loss):
    result = TrainingResult(1, 16, 40, 2.5, {"loss": 0.5, "val_error": loss})
    assert result.unusable == replace(result, metrics={}).unusable == "", "none of a run_fn"
    diverged = replace(result, metrics={name: loss})
    assert replace(diverged, best=BestEvaluation("val_loss", epoch=1, step=20, metrics={"val_loss": 0.5})).unusable == ""
    assert diverged.unusable.startswith(f"the {name} is {loss:g} at the end of the training")
