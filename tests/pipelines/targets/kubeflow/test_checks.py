"""Tests what is refused or warned of before a pipeline is compiled for Kubeflow."""

import re

import pytest
from click.testing import CliRunner
from compiled_for_kubeflow import TARGET, compiled, project

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.kubeflow.target import KubeflowTarget
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"targets": {}}, "targets.kubeflow: is missing"),
        ({"data": {"csv": "data"}}, "cannot be reached by a step; for Kubeflow write an address such as gs://bucket/folder"),
        (
            {"targets": {"kubeflow": TARGET | {"volumes": [{"claim": "c", "mount_path": "/minio/"}]}}},
            "targets.kubeflow.volumes: /minio/ is a folder of Kubeflow's own",
        ),
        (
            {"targets": {"kubeflow": TARGET | {"volumes": [{"claim": "c", "mount_path": path} for path in ("/a", "/b")]}}},
            "targets.kubeflow.volumes: claim c is there more than once",
        ),
        ({"data": {"csv": "s3://bucket/data"}}, "data.csv: s3://bucket/data cannot be reached by a step"),
        (
            {"beam": {"runner": "flink", "flink_master": "f:8081"}},
            "beam.runner: the machines of flink reach nothing at s3://",
        ),
        ({"push": {}}, "push.directory: is missing; a step cannot push to s3://bucket/root"),
        ({"push": {"directory": "/serving"}}, "push.directory: /serving cannot be reached by a step"),
        ({"resources": {"Trainr": {}}}, "resources.Trainr: the pipeline has no such component; it has CsvExampleGen"),
        (
            {"resources": {"Trainer": {"accelerator": "nvidia-l5"}}},
            "resources.Trainer.accelerator: gke has no 'nvidia-l5'; did you mean 'nvidia-l4'",
        ),
        ({"resources": {"default": {"accelerator": "gpu"}}}, "resources.default.accelerator: gke has no 'gpu'"),
        (
            {"resources": {"TrainerStep": {"accelerator": "nvidia-l4"}}},
            "resources.TrainerStep.accelerator: has no effect: this step only waits for the machines that train; write it "
            "under resources.Trainer",
        ),
        (
            {"targets": {"kubeflow": TARGET | {"training": "step"}}, "resources": {"TrainerStep": {"cpu": 1}}},
            "resources.TrainerStep: has no effect with training: step",
        ),
        ({"targets": {"kubeflow": TARGET | {"training_dir": "/elsewhere"}}}, "training_dir: /elsewhere is not on a volume"),
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


def with_volume(mount_path):
    return {"volumes": [*TARGET["volumes"], {"claim": "more", "mount_path": mount_path}]}


@pytest.mark.parametrize(
    ("settings", "expected_start"),
    [
        (
            {"pipeline_root": "minio://mlpipeline/v2/artifacts"},
            "targets.kubeflow.pipeline_root: minio://mlpipeline/v2/artif",
        ),
        ({"pipeline_root": "minio://mlpipeline/private/other/a"}, "targets.kubeflow.pipeline_root: minio://mlpipeline/priv"),
        ({"pipeline_root": "minio://mlpipeline/private-artifacts/team/v2"}, None),
        ({"pipeline_root": "minio://mlpipeline/artifacts"}, None),
        ({"pipeline_root": "s3://own-bucket/root"}, None),
        ({"pipeline_root": "minio://mlpipeline/v2/artifacts", "namespace": None}, None),
        (
            {"gang_scheduling": {}, "training": "tfjob"},
            "targets.kubeflow.gang_scheduling: has an effect only if the Trainin",
        ),
        ({"gang_scheduling": {}}, None),
        (
            with_volume("/opt"),
            "targets.kubeflow.volumes: /opt hides /opt/venv, where the Dockerfile's image has this package",
        ),
        (with_volume("/pipeline"), "targets.kubeflow.volumes: /pipeline hides /pipeline, where"),
        (with_volume("/opt/data"), None),
    ],
)
def test_what_an_installation_may_refuse_or_ignore(tmp_path, settings, expected_start):
    target = without_none(TARGET | {"namespace": "team"} | settings)
    file = project(tmp_path, "digits", targets={"kubeflow": target}, resources={})
    result = CliRunner().invoke(main, ["plan", str(file), "--target", "kubeflow"])
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.output.splitlines() if line.startswith("warning: targets.kubeflow")]
    assert [warning.startswith(f"warning: {expected_start}") for warning in warnings] == [True] * bool(expected_start)
    assert KubeflowTarget(loader.load(file)).find_warnings() == [warning.removeprefix("warning: ") for warning in warnings]


@pytest.mark.parametrize(
    ("name", "machine", "words", "is_warned_of"),
    [
        ("Trainer", {"accelerator": "nvidia-tesla-v100"}, (), True),
        ("Transform", {"accelerator": "nvidia-tesla-v100"}, (), True),
        ("Trainer", {"accelerator": "nvidia-l4"}, (), False),
        # Pods of a training have affinities with every version.
        ("Trainer", {"accelerator": "nvidia-tesla-v100"}, ("strategy=multi_worker_mirrored", "num_workers=2"), False),
        (
            "Trainer",
            {"accelerator": "nvidia-tesla-v100", "node_selector": {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}},
            (),
            False,
        ),
    ],
)
def test_steps_on_one_of_several_products(tmp_path, name, machine, words, is_warned_of):
    target = TARGET | {"platform": "kubernetes"}
    file = project(tmp_path, "digits", resources={name: machine}, targets={"kubeflow": target})
    spec = loader.override(loader.load(file), loader.parse_parameters(words))
    warnings = [warning for warning in KubeflowTarget(spec).find_warnings() if "several products" in warning]
    start = f"resources.{name}.accelerator: nvidia-tesla-v100 is several products, and "
    assert [warning.startswith(start) for warning in warnings] == [True] * is_warned_of


@pytest.mark.parametrize(
    ("words", "target", "message"),
    [
        (("accelerator_count=4",), {}, "accelerator_count: 4 devices per training process, but a machine has 2"),
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
