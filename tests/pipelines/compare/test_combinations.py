import pytest

from tfx_distribute.pipelines.compare import combinations as combinations_lib
from tfx_distribute.pipelines.compare import grid
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.spec.tune import Tune
from tfx_distribute.trainer_module.errors import ConfigurationError

MULTI = "strategy=multi_worker_mirrored"


@pytest.fixture
def make(request):
    digits = loader.load(request.config.rootpath / "examples" / "digits" / "pipeline.yaml")

    def make(*arguments, train_steps=200, scaling="weak", gpus=(), spec=digits):
        return combinations_lib.make(spec, grid.parse(arguments), train_steps, scaling, gpus)

    make.spec = digits
    return make


def test_the_pipeline_is_cut_down_to_a_measured_training(make):
    (combination,) = make("learning_rate=1")
    spec = combination.spec
    assert (spec.evaluate, spec.push, spec.tune) == (None, None, None)
    assert (spec.trainer.parameters.train_steps, spec.trainer.parameters.epochs) == (200, 0)
    assert spec.trainer.parameters.steps_per_epoch == 10
    assert spec.trainer.hparams["learning_rate"] == 1.0
    assert (combination.processes, combination.devices, combination.replicas) == (1, 1, 1)


def test_a_combination_that_cannot_be_trained_has_its_reason(make):
    combinations = make("strategy=one_device,multi_worker_mirrored", "num_workers=1,2")
    assert [bool(each.problem) for each in combinations] == [False, True, False, False]
    assert combinations[1].problem.startswith("num_workers: strategy 'one_device' trains in one process")
    assert [each.processes for each in combinations] == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["strategy=fastest,one_device"], "-p strategy=fastest: strategy: there is no strategy 'fastest'"),
        (["num_workers=1,2"], "-p num_workers=2: num_workers: strategy 'one_device' trains in one process"),
        (
            ["strategy=one_device,multi_worker_mirrored", "num_workers=2,3"],
            "-p strategy=one_device: cannot be trained in any combination; the first, strategy=one_device num_workers=2: ",
        ),
        (["strategy=one_device", "num_workers=2"], "-p num_workers=2: num_workers: strategy 'one_device' trains in one"),
        (["strategy=multi_worker_mirrored", "num_workers=1,-2"], "-p num_workers=-2"),
        (["num_workers=1,true"], "-p num_workers=true"),
        (["lerning_rate=1,2"], "did you mean 'learning_rate'?"),
        (["all_reduce=reduction_server", MULTI, "num_workers=2"], "this machine has none"),
    ],
)
def test_a_value_without_a_combination_is_refused(make, arguments, message):
    with pytest.raises(ConfigurationError) as error:
        make(*arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "blamed"),
    [
        ([MULTI, "num_workers=3"], f"-p {MULTI} -p num_workers=3"),
        ([MULTI, "num_workers=1,3"], "-p num_workers=3"),
    ],
)
def test_values_are_blamed_that_are_in_no_combination_that_can_be_trained(make, arguments, blamed):
    with pytest.raises(ConfigurationError) as error:
        make(*arguments, scaling="strong")
    assert str(error.value).startswith(f"{blamed}: per_replica_batch_size: with --scaling strong")


def test_strong_scaling_divides_the_batch(make):
    combinations = make(MULTI, "num_workers=1,2,3,4", "per_replica_batch_size=32,33", scaling="strong")
    batches = [each.spec and each.spec.trainer.parameters.per_replica_batch_size for each in combinations]
    assert batches == [32, 33, 16, None, None, 11, 8, None]
    assert combinations[4].problem.endswith("32 does not divide among 3 replicas; write 33, or --scaling weak")
    # Workers of parameter servers do not train in step: a step is one worker's batch.
    combinations = make("strategy=parameter_server", "num_workers=1,2", scaling="strong")
    assert [each.spec.trainer.parameters.per_replica_batch_size for each in combinations] == [32, 32]
    assert [(each.processes, each.devices, each.replicas) for each in combinations] == [(3, 1, 1), (4, 2, 1)]
    with pytest.raises(ConfigurationError, match="the machine decides on the replicas of 'tpu'"):
        make("strategy=tpu", scaling="strong")


def test_gpus_of_this_machine_are_divided(make):
    combinations = make(MULTI, "num_workers=1,2", "accelerator_count=1,2", gpus=["0", "1"])
    assert [each.devices for each in combinations[:3]] == [1, 2, 2]
    assert "2 processes with 2 GPUs each, of this machine's 2" in combinations[3].problem
    (mirrored,) = make("strategy=mirrored", gpus=["0", "1"])
    assert (mirrored.devices, mirrored.replicas) == (2, 2)


def test_combinations_with_the_same_shards_share_their_data(make):
    combinations = make("strategy=one_device,multi_worker_mirrored", "num_workers=1,2,3", "seed=1,2")
    ((spec, group),) = combinations_lib.group_by_data(combinations)
    assert len(group) == 8, "without the four that cannot be trained"
    assert spec.trainer.parameters.num_workers == 6
    groups = combinations_lib.group_by_data(make("num_shards=2,4"))
    assert [spec.shards.num_shards for spec, _ in groups] == [2, 4]
    ((spec, _),) = combinations_lib.group_by_data(make(MULTI, "num_workers=16,17,31"))
    assert spec.trainer.parameters.num_workers == 31


def test_shards_that_do_not_divide_are_noted(make):
    notes = [each.note for each in make(MULTI, "num_workers=2,4", "num_shards=2")]
    assert notes == [
        "",
        "2 shards do not divide among 4 processes, which read some of them several times; write num_shards=4",
    ]


def test_a_run_fn_is_refused(make, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(
        "name: mine\nmodule: model.py\ndata: {csv: a.csv}\ntrainer: {parameters: {train_steps: 5}}\n"
    )
    (tmp_path / "model.py").write_text("def run_fn(fn_args): ...\n")
    with pytest.raises(ConfigurationError, match="a run_fn trains by itself"):
        make(spec=loader.load(tmp_path / "pipeline.yaml"))


def test_the_search_and_the_thresholds_of_the_pipeline_are_left_out(make):
    search = {"objective": "val_loss", "max_trials": 2, "space": {"learning_rate": {"min": 0.1, "max": 1.0}}}
    spec = make.spec.model_copy(update={"tune": Tune.model_validate(search)})
    (combination,) = make("base_model=latest_blessed", spec=spec)
    assert (combination.spec.tune, combination.spec.evaluate) == (None, None)
    assert combination.spec.trainer.base_model == "latest_blessed"
