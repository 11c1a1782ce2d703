"""Tests what is refused or warned of before a pipeline is compiled for Vertex AI."""

import pytest
from click.testing import CliRunner
from compiled_for_vertex import TARGET, compiled, project

from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.vertex.target import VertexTarget
from tfx_distribute.trainer_module.errors import ConfigurationError

REFUSED = {
    "no project": ({"project": None}, {}, (), "targets.vertex.project: is missing; write it, or give --project"),
    "local push": ({}, {"push": {"directory": "/serving"}}, (), "push.directory: /serving cannot be reached by a step"),
    "label": ({"labels": {"Team": "a"}}, {}, (), "targets.vertex.labels"),
    "step with a disk": (
        {"training": "step", "worker_pool": {"disk_spec": {"boot_disk_size_gb": 200}}},
        {},
        (),
        "targets.vertex.training: a step has no worker_pool; write custom_job or auto",
    ),
    "reduction servers of a step": (
        {"training": "step"},
        {},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "all_reduce: reduction_server is Vertex AI's, and a step has none",
    ),
    "reduction servers without GPUs": (
        {},
        {"resources": {"Trainer": {"cpu": 4}}},
        ("strategy=multi_worker_mirrored", "num_workers=2", "all_reduce=reduction_server"),
        "resources.Trainer.accelerator: is missing, and reduction servers sum what GPUs send",
    ),
    "machine of a step": (
        {},
        {"resources": {"Transform": {"machine_type": "n2-standard-8"}}},
        (),
        "resources.Transform: a step has no machine_type",
    ),
    "accelerator of a step": (
        {},
        {"resources": {"Transform": {"accelerator": "nvidia-l5"}}},
        (),
        "resources.Transform.accelerator: vertex has no 'nvidia-l5'; it has ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    target, changes, words, message = REFUSED[case]
    targets = {"vertex": {name: value for name, value in {**TARGET, **target}.items() if value is not None}}
    file = project(tmp_path, "digits", targets=targets, **changes)
    with pytest.raises(ConfigurationError) as error:
        compiled(file, *words)
    assert message in str(error.value)
    parameters = [word for parameter in words for word in ("-p", parameter)]
    result = CliRunner().invoke(main, ["validate", str(file), "--target", "vertex", *parameters])
    assert message in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "http://k"), "--host: goes with --target kubeflow, not with --target vertex"),
        (("--experiment", "e"), "--experiment: is for Kubeflow; on Vertex AI write --labels"),
        (("--start-time", "2026-01-01T00:00:00Z"), "--start-time: belongs to a schedule; write --cron too"),
        (("--region", "Europe"), "--region: 'Europe' is not allowed"),
        (("--region", "europe-west99"), "the SDK of Vertex AI refuses: Unsupported region for Vertex AI"),
        (("--cron", "0 3 * * *", "--wait"), "--wait: is for one run, without --cron"),
    ],
)
def test_options_that_do_not_go_together(words, message, tmp_path):
    result = CliRunner().invoke(main, ["submit", str(project(tmp_path, "taxi")), "--target", "vertex", *words])
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert message in result.output


def test_a_machine_with_idle_devices(tmp_path):
    machine = {"accelerator": "nvidia-h100-80gb", "accelerator_count": 8}
    spec = loader.load(project(tmp_path, "digits", resources={"Trainer": machine}))
    (warning,) = VertexTarget(loader.override(spec, {"strategy": "one_device"})).find_warnings()
    assert warning.startswith("resources.Trainer: a machine has 8 nvidia-h100")
