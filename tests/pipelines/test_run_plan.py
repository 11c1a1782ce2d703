"""Tests plans, and that a run does what its plan says."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner

from tfx_distribute.components import Search, ValueRange
from tfx_distribute.pipelines import run_plan as plan_lib
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.pipelines.run_plan import as_text
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.pipeline import Data, Parameters, PipelineSpec, Shards, Train
from tfx_distribute.pipelines.targets.local.target import LocalTarget

RUN_FN = {"module": "own_run_fn.py", "strategy": "mirrored", "accelerator_count": 2, "epochs": 0, "train_steps": 9}


@pytest.fixture
def make(tmp_path):
    (tmp_path / "own.py").write_text("def build_model(context): ...\n")
    (tmp_path / "own_run_fn.py").write_text("def run_fn(fn_args): ...\n")
    (tmp_path / "data.csv").write_text("x,y\n" + "1,2\n" * 900)

    def make(
        module: str = "own.py", splits: dict[str, int] | None = None, num_shards: int = 0, **parameters: object
    ) -> plan_lib.RunPlan:
        spec = PipelineSpec(
            name="mine",
            module=str(tmp_path / module),
            data=Data(csv=str(tmp_path / "data.csv"), splits=splits or {"train": 2, "eval": 1}),
            shards=Shards(num_shards=num_shards),
            trainer=Train(
                label="y",
                parameters=Parameters(**{"epochs": 3, **parameters}),
                hparams={} if module == "own_run_fn.py" else {"rate": 0.5},
            ),
        )
        return plan_lib.make_plan(spec, user_module.find(spec), LocalTarget(spec))

    return make


def test_the_whole_plan_of_two_workers(make):
    plan = make(
        strategy="multi_worker_mirrored",
        num_workers=2,
        accelerator_type="cpu",
        per_replica_batch_size=30,
        learning_rate_scaling="linear",
        num_shards=16,
    )
    assert "learn rate build_model's times 2\n" in as_text(plan)
    cluster = {"chief": ["127.0.0.1:PORT"], "worker": ["127.0.0.1:PORT"]}
    assert plan == plan_lib.RunPlan(
        pipeline="mine",
        strategy="multi_worker_mirrored",
        chosen_for="",
        summary=plan.summary,
        num_processes=2,
        roles=(
            plan_lib.RolePlan("chief", 1, "trains", "the model, TensorBoard logs"),
            plan_lib.RolePlan("worker", 1, "trains", "nothing"),
        ),
        tf_config=json.dumps({"cluster": cluster, "task": {"type": "ROLE", "index": "INDEX"}}),
        devices_per_process=1,
        num_replicas=2,
        per_replica_batch_size=30,
        gradient_accumulation_steps=1,
        global_batch_size=60,
        learning_rate_factor=2.0,
        data=plan_lib.DataPlan(processes=2, num_shards=16, shards_per_process=8, sharing=1),
        steps_per_epoch=None,
        train_steps=None,
        hparams={"rate": 0.5},
        search=None,
        launches=None,
        warnings=(),
    )


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ({"strategy": "mirrored", "accelerator_type": "cpu"}, "one device: strategy mirrored has nothing to distribute"),
        ({"splits": {"train": 1}}, "no split is called 'eval'"),
        ({"strategy": "tpu"}, "the TPU decides on the replicas"),
        ({"strategy": "parameter_server"}, "workers do not wait for each other"),
        ({"strategy": "model_parallel", "mesh": "1x2"}, "no layout_rules: every device holds the whole model"),
        ({"strategy": "multi_worker_mirrored", "num_workers": 4, "num_shards": 6}, "to take 1 in 2 .*write num_shards=8"),
        ({"strategy": "tpu"}, "all batches have the same size .a TPU's program is compiled for one"),
        (RUN_FN, "only if it takes it from get_strategy"),
    ],
)
def test_warnings(make, arguments, warning):
    plan = make(**arguments)
    assert any(re.search(warning, line) for line in plan.warnings), plan.warnings
    assert f"warning: {plan.warnings[0]}" in as_text(plan)


def test_strategy_that_is_left_open_is_told_with_its_reason(make):
    plan = make(strategy="auto", num_workers=2)
    assert (plan.strategy, plan.chosen_for, plan.num_processes) == ("multi_worker_mirrored", "2 workers", 2)
    assert "strategy   multi_worker_mirrored, chosen for 2 workers (tf.distribute." in as_text(plan)


def test_roles_of_parameter_servers(make):
    plan = make(strategy="parameter_server", num_workers=2)
    assert [(role.role, role.num_processes, role.does) for role in plan.roles] == [
        ("chief", 1, "coordinates: gives steps to workers"),
        ("worker", 2, "trains, whenever it is free"),
        ("ps", 1, "holds variables"),
    ]
    assert (plan.num_replicas, plan.global_batch_size) == (1, 32), "a step is one worker's"


def test_mesh_and_accumulation(make):
    plan = make(strategy="model_parallel", mesh="2x4", layout_rules="kernel = unsharded, model")
    assert (plan.devices_per_process, plan.num_replicas, plan.global_batch_size) == (8, 2, 64)
    plan = make(strategy="mirrored", accelerator_count=2, gradient_accumulation_steps=3, per_replica_batch_size=10)
    assert (plan.devices_per_process, plan.num_replicas, plan.global_batch_size) == (2, 2, 60)
    assert "3 times 10 per replica, global 60" in as_text(plan)


def test_for_people_and_for_programs(request):
    pipeline = str(request.config.rootpath / "examples" / "taxi" / "pipeline.yaml")
    parameters = ("strategy=multi_worker_mirrored", "num_workers=2", "accelerator_type=cpu")
    arguments = ["plan", pipeline, *(f"-p{parameter}" for parameter in parameters)]
    text = CliRunner().invoke(main, arguments)
    assert text.exit_code == 0
    assert "batch      64 per replica, global 128" in text.output
    assert "steps      known when the data has been read\n" in text.output
    assert "shards     as many as suit the data and 2 processes\n" in text.output
    program = CliRunner().invoke(main, [*arguments, "--output", "json"])
    document = json.loads(program.output)
    assert (document["num_replicas"], document["global_batch_size"], document["data"]["processes"]) == (2, 128, 2)
    assert [(role["role"], role["num_processes"]) for role in document["roles"]] == [("chief", 1), ("worker", 1)]


def test_what_the_machine_decides(make):
    text = as_text(make(strategy="tpu", learning_rate_scaling="linear"))
    assert "processes  1, devices decided by the machine\n" in text
    assert "replicas   decided by the machine\n" in text
    assert "batch      32 per replica, global decided by the machine\n" in text
    assert "learn rate build_model's times a factor decided by the machine\n" in text


def test_numbers_of_things(make):
    assert make().warnings == ()
    assert "steps      90, 30 per epoch\n" in as_text(make(epochs=0, train_steps=90, steps_per_epoch=30))
    two = as_text(make(strategy="multi_worker_mirrored", num_workers=2, accelerator_type="cpu", num_shards=5))
    assert "processes  2 with 1 device each\n" in two
    assert "shared with 1 other" in two
    assert "processes  1 with 4 devices\n" in as_text(make(strategy="mirrored", accelerator_count=4))
    assert "batch      decided by the run_fn\n" in as_text(make(**RUN_FN))


@pytest.mark.parametrize("target", ["kubeflow", "vertex"])
def test_what_the_trainer_would_create(target, request):
    file = request.config.rootpath / "examples" / "digits" / f"{target}.yaml"
    words = ["plan", str(file), "--target", target, "--output", "json", "-p", "strategy=multi_worker_mirrored"]
    one = json.loads(CliRunner().invoke(main, words).output)
    two = json.loads(CliRunner().invoke(main, [*words, "-p", "num_workers=2"]).output)
    if target == "kubeflow":
        assert one["launches"] is None, "a step has the machine of one process"
        assert [job["name"] for job in two["launches"]["spec"]["replicatedJobs"]] == ["chief", "worker"]
        text = CliRunner().invoke(main, ["plan", str(file), "--target", target, "-p", "strategy=parameter_server"]).output
        assert yaml.safe_load(text.partition("They run as:\n")[2])["kind"] == "JobSet"
    else:
        assert len(one["launches"]["job_spec"]["worker_pool_specs"]) == 1, "a step has no spot machine"
        assert len(two["launches"]["job_spec"]["worker_pool_specs"]) == 2


def test_devices_that_a_target_knows_are_planned(request):
    file = str(request.config.rootpath / "examples" / "digits" / "kubeflow.yaml")
    words = ["plan", file, "--target", "kubeflow", "--output", "json", "-p", "strategy=mirrored"]
    plan = json.loads(CliRunner().invoke(main, words).output)
    assert (plan["devices_per_process"], plan["num_replicas"], plan["global_batch_size"]) == (1, 1, 32)


def test_a_search_as_json(request):
    file = str(request.config.rootpath / "examples" / "digits" / "tune.yaml")
    plan = json.loads(CliRunner().invoke(main, ["plan", file, "--output", "json"]).output)
    assert set(plan["search"]["space"]) == {"hidden_units", "learning_rate"}


def test_a_search_is_planned(make, tmp_path):
    space = {"rate": ValueRange(min=0.001, max=1.0, sampling="log"), "units": ValueRange(values=[8, 16])}
    tune = Search(objective="val_accuracy", max_trials=6, num_parallel_trials=2, epochs=1, space=space)
    spec = PipelineSpec(
        name="mine",
        module=str(tmp_path / "own.py"),
        data=Data(csv=str(tmp_path / "data.csv")),
        trainer=Train(label="y", parameters=Parameters(epochs=3), hparams={"rate": 0.5, "units": 8}),
        tune=tune,
    )
    text = as_text(plan_lib.make_plan(spec, user_module.find(spec), LocalTarget(spec)))
    assert (
        "search     6 trials (random) of 1 epoch, 2 at a time, for the largest val_accuracy; then the training with the "
        "best values\nspace      rate=0.001..1 log, units=8|16\n"
    ) in text
    hyperband = tune.model_copy(update={"oracle": "hyperband", "max_trials": 0, "epochs": 0, "num_parallel_trials": 1})
    changed = spec.model_copy(update={"tune": hyperband})
    text = as_text(plan_lib.make_plan(changed, user_module.find(spec), LocalTarget(changed)))
    assert "search     hyperband, trials of at most 3 epochs, for the largest val_accuracy; then" in text
