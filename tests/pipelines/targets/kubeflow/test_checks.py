"""Tests what is refused or warned of before a pipeline is compiled for Kubeflow."""

import re

import pytest
from click.testing import CliRunner
from compiled_for_kubeflow import TARGET, compiled, project

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": {}}, "targets.kubeflow: is missing"),
        ({"data": {"csv": "data"}}, "cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder"),
        ({"data": {"csv": "s3://bucket/data"}}, "data.csv: s3://bucket/data cannot be reached by a step"),
        (
            {"beam": {"runner": "portable", "job_endpoint": "f:8099", "environment_type": "DOCKER"}},
            "beam.runner: the machines of portable reach nothing at s3://",
        ),
        ({"push": {}}, "push.directory: is missing; a step cannot push to s3://bucket/root"),
        ({"push": {"directory": "/serving"}}, "push.directory: /serving cannot be reached by a step"),
        ({"resources": {"Trainr": {}}}, "resources.Trainr: the pipeline has no such component; it has CsvExampleGen"),
        (
            {"resources": {"Trainer": {"accelerator": "nvidia-l5"}}},
            "resources.Trainer.accelerator: gke has no 'nvidia-l5'; it has ",
        ),
        ({"resources": {"default": {"accelerator": "gpu"}}}, "resources.default.accelerator: gke has no 'gpu'"),
        (
            {"targets": {"kubeflow": TARGET | {"training_dir": "/elsewhere"}}},
            "training_dir: /elsewhere cannot be reached by a step",
        ),
    ],
)
def test_mistakes(tmp_path, changes, message):
    file = project(tmp_path, "taxi", **changes)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        compiled(file)
    result = CliRunner().invoke(main, ["validate", str(file), "--target", "kubeflow"])
    assert (message in result.output) == ("Trainr" not in message), "only TFX knows all components"


def without_none(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if value is not None}


@pytest.mark.parametrize(
    ("words", "target", "message"),
    [
        (("accelerator_count=4",), {}, "accelerator_count: 4 devices per training process, but a machine has 2"),
        (
            ("num_workers=2", "strategy=multi_worker_mirrored", "all_reduce=reduction_server"),
            {},
            "all_reduce: reduction_server is Vertex AI's, and Kubeflow has none; write all_reduce=nccl",
        ),
        (
            ("num_workers=2", "strategy=multi_worker_mirrored"),
            {"training_dir": None},
            "training_dir: is missing; the pods of a training cannot reach s3://bucket/root",
        ),
    ],
)
def test_mistakes_about_training(tmp_path, words, target, message):
    file = project(tmp_path, "taxi", targets={"kubeflow": without_none(TARGET | target)})
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        compiled(file, "strategy=mirrored", *words)
