import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Schedule
from tfx_distribute.trainer_module.plan import Plan, make_plan


@pytest.mark.parametrize(
    ("schedule", "examples", "replicas", "plan"),
    [
        (Schedule(64, epochs=20), 1414, 1, Plan(1, 64, 22, 20)),
        (Schedule(32, epochs=20), 1414, 2, Plan(2, 64, 22, 20)),
        (Schedule(32, epochs=1), 47, 1, Plan(1, 32, 1, 1)),
        (Schedule(10, train_steps=500), 20, 2, Plan(2, 20, 500, 1)),
    ],
)
def test_how_many_steps_a_schedule_is(schedule, examples, replicas, plan):
    assert make_plan(schedule, examples, replicas) == plan


def test_batch_larger_than_the_data_is_refused_with_the_largest_that_fits():
    with pytest.raises(
        ConfigurationError, match="global batch of 128, but the train split has 100 examples; write at most 25"
    ):
        make_plan(Schedule(32, epochs=1), 100, 4)
