from dataclasses import replace

import pytest

from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Distribution, Schedule


@pytest.mark.parametrize("strategy", compatibility.NAMES)
def test_each_built_strategy_runs_with_its_defaults(strategy):
    compatibility.check(Distribution(strategy=strategy), Schedule())


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (Distribution("auto", num_workers=3), "multi_worker_mirrored"),
        (Distribution("auto", accelerator_count=2), "mirrored"),
        (Distribution("auto"), "mirrored"),
        (Distribution("auto", accelerator_type="cpu"), "one_device"),
        (Distribution("auto", accelerator_count=1), "one_device"),
    ],
)
def test_auto_is_chosen_from_workers_and_devices(asked, chosen):
    resolved, reason = compatibility.resolve(asked)
    assert resolved == replace(asked, strategy=chosen)
    assert reason
    compatibility.check(asked, Schedule())


def test_a_named_strategy_is_left_alone():
    assert compatibility.resolve(Distribution("mirrored")) == (Distribution("mirrored"), "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "miroired"}, "strategy: there is no strategy 'miroired'; choose one of default, one_device, mirrored"),
        ({"strategy": "parameter_server"}, "strategy: 'parameter_server' .* is not built in this version"),
        ({"num_workers": 0}, "num_workers: 0 is too small; write 1 or more"),
        ({"num_workers": 2}, "num_workers: strategy 'default' trains in one process.*strategy=multi_worker_mirrored"),
        ({"num_parameter_servers": 1}, "num_parameter_servers: strategy 'default' has no parameter servers"),
        ({"accelerator_type": "gpus"}, "accelerator_type: 'gpus' is not known; choose one of auto, cpu, gpu"),
        ({"accelerator_count": 2}, "accelerator_count: strategy 'default' trains on one device.*strategy=mirrored"),
        ({"strategy": "mirrored", "all_reduce": "ring"}, "all_reduce: strategy 'mirrored' does not know 'ring'"),
        (
            {"strategy": "mirrored", "all_reduce": "nccl", "accelerator_type": "cpu"},
            "all_reduce: nccl moves data between GPUs",
        ),
        (
            {"strategy": "multi_worker_mirrored", "accelerator_type": "cpu", "accelerator_count": 2},
            "accelerator_count: strategy 'multi_worker_mirrored' uses one CPU device per process",
        ),
        ({"per_replica_batch_size": 0}, "per_replica_batch_size: 0 is too small; write 1 or more"),
        ({"train_steps": 3, "epochs": 2}, "epochs: train_steps=3 and epochs=2 both say how long to train"),
        (
            {"learning_rate_scaling": "cubic"},
            "learning_rate_scaling: 'cubic' is not known; choose one of none, linear, sqrt",
        ),
        ({"warmup_steps": -1}, "warmup_steps: -1 is too small"),
        ({"precision": "float64"}, "precision: 'float64' is not known"),
        ({"precision": "mixed_float16", "accelerator_type": "cpu"}, "precision: mixed_float16 needs a GPU"),
    ],
)
def test_what_cannot_train_is_refused_with_the_fix(changes, message):
    of_schedule = {name: value for name, value in changes.items() if hasattr(Schedule, name)}
    of_distribution = {name: value for name, value in changes.items() if name not in of_schedule}
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        compatibility.check(replace(Distribution(), **of_distribution), replace(Schedule(), **of_schedule))
