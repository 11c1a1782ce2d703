from dataclasses import fields, replace

import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_info, strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, InputOptions, TrainingOptions


@pytest.mark.parametrize("strategy", strategy_info.NAMES)
def test_each_built_strategy_runs_with_its_defaults(strategy):
    distribution = strategy_table.resolve(Distribution(strategy=strategy))
    strategy_table.check(distribution, TrainingOptions(), InputOptions(), FaultTolerance())


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (Distribution("auto", num_workers=3), "multi_worker_mirrored"),
        (Distribution("auto", num_workers=3, num_parameter_servers=1), "parameter_server"),
        (Distribution("auto", mesh="1x2"), "model_parallel"),
        (Distribution("auto", accelerator_count=2), "mirrored"),
        (Distribution("auto"), "mirrored"),
        (Distribution("auto", accelerator_type="cpu"), "one_device"),
        (Distribution("auto", accelerator_count=1), "one_device"),
    ],
)
def test_auto_is_chosen_from_workers_and_devices(asked, chosen):
    resolved = strategy_table.resolve(asked)
    assert resolved == replace(asked, strategy=chosen)
    name, reason = strategy_table.choose(asked)
    assert name == chosen
    assert reason
    assert strategy_table.choose(resolved) == (name, reason)
    strategy_table.check(resolved, TrainingOptions(), InputOptions(), FaultTolerance())


def test_a_named_strategy_is_left_alone():
    assert strategy_table.resolve(Distribution("mirrored")) == Distribution("mirrored")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "miroired"}, "strategy: there is no strategy 'miroired'; choose one of default, one_device, mirrored"),
        ({"num_workers": 0}, "num_workers: 0 is too small; write 1 or more"),
        ({"num_workers": 2}, "num_workers: strategy 'default' trains in one process.*strategy=multi_worker_mirrored"),
        ({"num_parameter_servers": 1}, "num_parameter_servers: strategy 'default' has no parameter servers"),
        ({"accelerator_count": 2}, "accelerator_count: strategy 'default' trains on one device.*strategy=mirrored"),
        ({"strategy": "mirrored", "all_reduce": "ring"}, "all_reduce: strategy 'mirrored' does not support 'ring'"),
        (
            {"strategy": "mirrored", "all_reduce": "nccl", "accelerator_type": "cpu"},
            "all_reduce: nccl moves data between GPUs",
        ),
        (
            {"strategy": "multi_worker_mirrored", "accelerator_type": "cpu", "accelerator_count": 2},
            "accelerator_count: strategy 'multi_worker_mirrored' uses one CPU device per process",
        ),
        ({"train_steps": 3, "epochs": 2}, "epochs: train_steps=3 and epochs=2 both say how long to train"),
        ({"precision": "float64"}, "precision: 'float64' is not known"),
        ({"partition_min_bytes": 1}, "partition_min_bytes: strategy 'default' has no parameter servers"),
        (
            {"strategy": "parameter_server", "accelerator_count": 2},
            "accelerator_count: strategy 'parameter_server' trains on one device of a process",
        ),
        (
            {"strategy": "multi_worker_mirrored", "all_reduce": "reduction_server"},
            "all_reduce: reduction_server sums between machines, and num_workers is 1",
        ),
        ({"mesh": "1x2"}, "mesh: strategy 'default' does not split a model, but mesh is 1x2; .*strategy=model_parallel"),
        ({"layout_rules": "kernel = model"}, "layout_rules: strategy 'default' does not split a model"),
        ({"strategy": "model_parallel", "mesh": "2"}, "mesh: '2' is not a valid mesh; write .* such as 2x4"),
        (
            {"strategy": "model_parallel", "mesh": "2x2", "accelerator_count": 3},
            "mesh: 2x2 is 4 devices, but accelerator_count is 3; write accelerator_count=4, or a mesh of 3, .* mesh=1x3",
        ),
        ({"strategy": "tpu", "accelerator_type": "gpu"}, "accelerator_type: strategy 'tpu' does not train on 'gpu'"),
        ({"strategy": "tpu", "accelerator_count": 4}, "accelerator_count: a TPU is used whole"),
        ({"tpu": "my-tpu"}, "tpu: strategy 'default' uses no TPU, but tpu is my-tpu; leave it out, or write strategy=tpu"),
        (
            {"keras_version": 3, "strategy": "parameter_server"},
            "keras_version: strategy 'parameter_server' does not go with 3: its optimizers lose steps .*"
            "write keras_version=2, or another strategy",
        ),
        (
            {"gradient_accumulation_steps": 2, "strategy": "parameter_server"},
            "gradient_accumulation_steps: strategy 'parameter_server' does not go with 2: a w",
        ),
        (
            {"jit_compile": True, "strategy": "parameter_server"},
            "jit_compile: .* XLA cannot read .*; write jit_compile=false",
        ),
        (
            {"precision": "mixed_float16", "strategy": "model_parallel"},
            "precision: .* does not go with mixed_float16: Keras does not scale losses there",
        ),
        ({"profile_steps": "5"}, "profile_steps: '5' is not a window of training steps"),
        ({"profile_steps": "5,3"}, "profile_steps: '5,3' is not a window of training steps"),
        ({"profile_steps": "25,30", "train_steps": 20}, "profile_steps: '25,30' is after the last of 20 training steps"),
        ({"export_mode": "max"}, "export_mode: goes with export_best, which is empty"),
        ({"precision": "mixed_float16", "accelerator_type": "cpu"}, "precision: mixed_float16 needs a GPU"),
    ],
)
def test_what_cannot_train_is_refused_with_the_fix(changes, message):
    of_schedule = {name: value for name, value in changes.items() if hasattr(TrainingOptions, name)}
    of_distribution = {name: value for name, value in changes.items() if name not in of_schedule}
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        strategy_table.check(
            replace(Distribution(), **of_distribution),
            replace(TrainingOptions(), **of_schedule),
            InputOptions(),
            FaultTolerance(),
        )


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_factor_of_the_learning_rate(scaling, factor):
    assert strategy_table.learning_rate_factor(scaling, 4) == factor


REACH_RUN_FN = {"train_steps", "eval_steps", "keras_version", "heartbeat_timeout_secs", "max_restarts"}


def changed(group: type, name: str) -> object:
    """Returns the group with another value for one of its fields."""
    default = getattr(group(), name)
    return group(**{name: not default if isinstance(default, bool) else default + type(default)(1)})


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, field.name) for group in (TrainingOptions, InputOptions, FaultTolerance) for field in fields(group)],
)
def test_each_parameter_reaches_a_run_fn_or_is_named(group, name):
    groups = [changed(group, name) if kind is group else kind() for kind in (TrainingOptions, InputOptions, FaultTolerance)]
    assert set(strategy_table.find_ignored("run_fn", *groups, ())) == {name} - REACH_RUN_FN
    assert not strategy_table.find_ignored("build_model", *groups, ())


def test_arguments_of_the_other_function_are_named():
    arguments = ("hparams", "custom_config", "base_model", "warm_start")
    nothing = (TrainingOptions(), InputOptions(), FaultTolerance())
    assert set(strategy_table.find_ignored("run_fn", *nothing, arguments)) == {"hparams", "base_model"}
    assert set(strategy_table.find_ignored("build_model", *nothing, arguments)) == {"custom_config"}
    assert not strategy_table.find_ignored("run_fn", *nothing, ())
