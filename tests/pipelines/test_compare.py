from pathlib import Path

import pytest
from compared import outcome, record, unmeasured

from tfx_distribute.components import Search
from tfx_distribute.pipelines import compare
from tfx_distribute.pipelines.spec import loader
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.parameters import GROUPS, declarations

MULTI = "strategy=multi_worker_mirrored"


@pytest.fixture
def make(request):
    digits = loader.load(request.config.rootpath / "examples" / "digits" / "pipeline.yaml")

    def make(*arguments, gpus=(), spec=digits):
        return compare.make(spec, compare.parse(arguments), 200, gpus)

    make.spec = digits
    return make


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["num_workers= 1, 2 ", "num_workers=4"], {"num_workers": (1, 2, 4)}),
        (["flag=true,1,1.0"], {"flag": (True, 1, 1.0)}),
        (["mesh=1x2,2x1", "mesh="], {"mesh": ("1x2", "2x1", "")}),
        (["layout_rules="], {"layout_rules": ("",)}),
        (["text=a=b,c"], {"text": ("a=b", "c")}),
    ],
)
def test_values(arguments, expected):
    assert repr(compare.parse(arguments)) == repr(expected)


def test_all_parameters_of_free_text_are_known():
    """A comma in a new parameter of this kind must not divide it."""
    texts = {each.name for each in declarations(*GROUPS) if each.type is str and not each.choices}
    assert texts <= compare.NOT_SPLIT | {"mesh", "export_best", "profile_steps"}
    assert compare.NOT_SPLIT - {"base_model"} <= texts


def test_the_pipeline_is_cut_down_to_a_measured_training(make):
    search = {"objective": "val_loss", "max_trials": 2, "space": {"learning_rate": {"min": 0.1, "max": 1.0}}}
    spec = make.spec.model_copy(update={"tune": Search.model_validate(search)})
    (combination,) = make("learning_rate=1", "base_model=model.keras", spec=spec)
    spec = combination.spec
    assert (spec.evaluate, spec.push, spec.tune) == (None, None, None)
    assert (spec.trainer.parameters.train_steps, spec.trainer.parameters.epochs) == (200, 0)
    assert spec.trainer.parameters.steps_per_epoch == 10
    assert (spec.trainer.hparams["learning_rate"], Path(spec.trainer.base_model.path).name) == (1.0, "model.keras")
    assert (combination.processes, combination.devices) == (1, 1)


def test_all_combinations_are_made_in_order(make):
    combinations = make("strategy=one_device,multi_worker_mirrored", "num_workers=1,2")
    assert [each.label for each in combinations][1:3] == [
        "strategy=one_device num_workers=2",
        "strategy=multi_worker_mirrored num_workers=1",
    ]
    assert [bool(each.reason) for each in combinations] == [False, True, False, False]
    assert combinations[1].reason.startswith("num_workers: strategy 'one_device' trains in one process")
    assert [each.processes for each in combinations] == [1, 0, 1, 2]
    servers = make("strategy=parameter_server", "num_workers=1,2")
    assert [(each.processes, each.devices) for each in servers] == [(3, 1), (4, 2)]
    assert make()[0].label == "the training"


def test_all_combinations_read_the_same_shards_in_whole_files(make):
    assert [each.spec.shards.num_shards for each in make(MULTI, "num_workers=1,2,3")] == [18, 18, 18]
    assert make(MULTI, "num_workers=3")[0].spec.shards.num_shards == 0, "as many as a run has"
    assert make(MULTI, "num_workers=1,2", "num_shards=5")[0].spec.shards.num_shards == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["strategy=fastest,one_device"], "-p strategy=fastest: strategy: there is no strategy 'fastest'"),
        (["num_workers=1,2"], "-p num_workers=2: num_workers: strategy 'one_device' trains in one process"),
        (["strategy=one_device,multi_worker_mirrored", "num_workers=2,3"], "-p strategy=one_device: num_workers: "),
        ([MULTI, "num_workers=1,-2"], "-p num_workers=-2"),
        (["num_workers=1,true"], "-p num_workers=true"),
        (["num_workers=1,"], "-p num_workers="),
        (["num_workers"], "-p num_workers: write -p name=value"),
        (["=1,2"], "-p =1: write -p name=value"),
        (["lerning_rate=1,2"], "did you mean 'learning_rate'?"),
        (["all_reduce=reduction_server", MULTI, "num_workers=2"], "this machine has none"),
        (["epochs=1,2"], "-p epochs: all combinations train for the same steps; write --train-steps instead"),
        (["validation_freq=2"], "-p validation_freq: a comparison only trains, with validation_freq=21; leave it out"),
        (
            ["base_model=latest_blessed"],
            "base_model: the runs of a comparison have a folder of their own",
        ),
        (["num_shards=2,4"], "-p num_shards: all combinations train on the same data and base model; write one value"),
    ],
)
def test_what_cannot_be_compared_is_refused(make, arguments, message):
    with pytest.raises(ConfigurationError) as error:
        make(*arguments)
    assert message in str(error.value)


def test_gpus_of_this_machine_are_divided(make):
    combinations = make(MULTI, "num_workers=1,2", "accelerator_count=1,2", gpus=["0", "1"])
    assert [each.devices for each in combinations[:3]] == [1, 2, 2]
    assert "2 processes with 2 GPUs each, of this machine's 2" in combinations[3].reason
    assert make("strategy=mirrored", gpus=["0", "1"])[0].devices == 2


def test_a_run_fn_is_refused(make, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(
        "name: mine\nmodule: model.py\ndata: {csv: a.csv}\ntrainer: {parameters: {train_steps: 5}}\n"
    )
    (tmp_path / "model.py").write_text("def run_fn(fn_args): ...\n")
    with pytest.raises(ConfigurationError, match="a run_fn trains by itself"):
        make(spec=loader.load(tmp_path / "pipeline.yaml"))


def test_trainings_that_differ_in_their_size_alone_are_compared():
    outcomes = [
        outcome(1500, 4, strategy="mirrored", num_workers=4),
        outcome(800, 2, strategy="mirrored", num_workers=2),
        outcome(900, 1, strategy="one_device", num_workers=1),
        outcome(700, 0, strategy="tpu", num_workers=1),
        unmeasured("failed", "no memory", strategy="mirrored", num_workers=1),
    ]
    assert compare.efficiencies(outcomes) == [pytest.approx(1500 / 800 / 2), 1.0, 1.0, None, None]


def history(step_seconds=0.1, task="chief-0", **shares):
    """Returns three epochs of ten steps; tracing is part of the first one."""
    records = []
    for epoch in (1, 2, 3):
        # Something else takes half a second of each epoch, such as callbacks.
        seconds = {name: share * 10 * epoch * step_seconds for name, share in shares.items()}
        seconds |= {"trace": 3.0, "other": 0.5 * epoch}
        time = 13.0 + epoch * (10 * step_seconds + 0.5)
        records.append(record(time, 10 * epoch, task=task, metrics={"loss": 1 / epoch}, seconds=seconds))
    return records


def test_the_warm_up_and_other_activities_do_not_count():
    measured = compare.measure(history(input=0.25, compute=0.75))
    assert (measured.batch, measured.seconds, measured.loss) == (64, pytest.approx(2.0), pytest.approx(1 / 3))
    assert measured.examples_per_second == pytest.approx(640)
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.25), None)


def test_shares_are_means_over_the_processes():
    slow = history(0.5, task="worker-0", input=0.5, compute=0.5, wait_for_peers=0.0)
    fast = history(0.5, input=0.1, compute=0.4, wait_for_peers=0.5)
    measured = compare.measure([*slow, *fast])
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.3), pytest.approx(0.25))
    assert measured.slowest.startswith("worker 0 holds the others back for 50 % of the time")


def test_without_times_of_activities_the_clock_counts():
    measured = compare.measure([record(2.0, 10), record(4.0, 20), record(6.0, 30)])
    assert (measured.seconds, measured.input_share, measured.wait_share, measured.loss) == (4.0, None, None, None)


@pytest.mark.parametrize("records", [[], history()[:1], history(task="worker-0")])
def test_too_short(records):
    with pytest.raises(TrainingError, match="too few to measure"):
        compare.measure(records)
