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


def test_mistakes_about_training(tmp_path):
    with pytest.raises(ConfigurationError, match="accelerator_count: 4 devices per training process, but a machine has 2"):
        compiled(project(tmp_path, "taxi"), "strategy=mirrored", "accelerator_count=4")
    unshared = {name: value for name, value in TARGET.items() if name != "training_dir"}
    file = project(tmp_path, "taxi", targets={"kubeflow": unshared})
    with pytest.raises(ConfigurationError, match=r"training_dir: is missing; the pods of a training cannot reach s3://"):
        compiled(file, "strategy=multi_worker_mirrored", "num_workers=2")
