import pytest

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.step_plan import Plan, make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingOptions


@pytest.mark.parametrize(
    ("training_options", "examples", "replicas", "plan"),
    [
        (TrainingOptions(64, epochs=20), 1414, 1, Plan(1, 64, 23, False, 23, 460)),
        (TrainingOptions(32, epochs=20), 1414, 2, Plan(2, 64, 23, False, 23, 460)),
        (TrainingOptions(32, epochs=20, drop_remainder=True), 1414, 2, Plan(2, 64, 22, True, 22, 440)),
        (TrainingOptions(32, epochs=1), 33, 1, Plan(1, 32, 2, False, 2, 2)),
        (TrainingOptions(10, train_steps=500), 21, 2, Plan(2, 20, 2, False, 500, 500)),
        # One example a replica: the last step would leave a replica without any.
        (TrainingOptions(1, epochs=2), 9, 2, Plan(2, 2, 4, True, 4, 8)),
    ],
)
def test_how_many_steps_a_schedule_is(training_options, examples, replicas, plan):
    assert make_plan(training_options, examples, replicas) == plan


@pytest.mark.parametrize(
    ("steps_per_epoch", "steps"),
    [(0, [10]), (4, [4, 4, 2]), (5, [5, 5]), (10, [10]), (99, [10])],
)
def test_training_steps_are_divided_into_epochs(steps_per_epoch, steps):
    plan = make_plan(TrainingOptions(10, train_steps=10, steps_per_epoch=steps_per_epoch), 25, 1)
    assert [plan.steps_of_epoch(epoch) for epoch in range(plan.epochs)] == steps
    assert plan.steps_per_pass == 3


def test_strategy_may_need_batches_of_one_size():
    assert make_plan(TrainingOptions(32, epochs=1), 100, 1, fixed_batches=True) == Plan(1, 32, 3, True, 3, 3)


def test_batch_larger_than_the_data_is_refused_with_the_largest_that_fits():
    with pytest.raises(
        ConfigurationError, match="global batch of 128, but the train split has 100 examples; write at most 25"
    ):
        make_plan(TrainingOptions(32, epochs=1), 100, 4)
