import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.step_plan import Plan, make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingOptions


@pytest.mark.parametrize(
    ("training_options", "examples", "replicas", "plan"),
    [
        (TrainingOptions(64, epochs=20), 1414, 1, Plan(1, 64, 23, False, 23, 20)),
        (TrainingOptions(32, epochs=20), 1414, 2, Plan(2, 64, 23, False, 23, 20)),
        (TrainingOptions(32, epochs=20, drop_remainder=True), 1414, 2, Plan(2, 64, 22, True, 22, 20)),
        (TrainingOptions(32, epochs=1), 33, 1, Plan(1, 32, 2, False, 2, 1)),
        (TrainingOptions(10, train_steps=500), 21, 2, Plan(2, 20, 2, False, 500, 1)),
        # One example a replica: the last step would leave a replica without any.
        (TrainingOptions(1, epochs=2), 9, 2, Plan(2, 2, 4, True, 4, 2)),
    ],
)
def test_how_many_steps_a_schedule_is(training_options, examples, replicas, plan):
    assert make_plan(training_options, examples, replicas) == plan


def test_strategy_may_need_batches_of_one_size():
    assert make_plan(TrainingOptions(32, epochs=1), 100, 1, fixed_batches=True) == Plan(1, 32, 3, True, 3, 1)


def test_batch_larger_than_the_data_is_refused_with_the_largest_that_fits():
    with pytest.raises(
        ConfigurationError, match="global batch of 128, but the train split has 100 examples; write at most 25"
    ):
        make_plan(TrainingOptions(32, epochs=1), 100, 4)
