from dataclasses import fields

import pytest

from tfx_distribute.trainer_module.job.training_job import FaultTolerance, InputOptions, TrainingOptions
from tfx_distribute.trainer_module.user_code.function_settings import find_ignored

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
    assert set(find_ignored("run_fn", *groups, ())) == {name} - REACH_RUN_FN
    assert not find_ignored("build_model", *groups, ())


def test_arguments_of_the_other_function_are_named():
    arguments = ("hparams", "custom_config", "base_model", "warm_start")
    nothing = (TrainingOptions(), InputOptions(), FaultTolerance())
    assert set(find_ignored("run_fn", *nothing, arguments)) == {"hparams", "base_model"}
    assert set(find_ignored("build_model", *nothing, arguments)) == {"custom_config"}
    assert not find_ignored("run_fn", *nothing, ())
