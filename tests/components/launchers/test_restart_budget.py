"""Tests how restarts of a training are counted."""

from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep


def make_budget(max_restarts, steps):
    return RestartBudget(max_restarts, lambda: SavedStep(steps[-1]))


def test_the_count_begins_again_when_training_has_advanced():
    steps = [0]
    budget = make_budget(2, steps)
    assert [budget.spend(), budget.spend(), budget.spend()] == [True, True, False]
    steps.append(10)
    assert [budget.spend(), budget.spend(), budget.spend()] == [True, True, False]
    steps.append(9)  # of a try that began at an earlier save
    assert budget.is_used_up()
    steps.append(11)
    assert not budget.is_used_up()
    assert budget.used == 0


def test_a_state_of_other_settings_is_not_what_training_has_to_exceed():
    """As after a run with another number of workers, whose state is kept."""
    states = [SavedStep(57, "2 workers")]
    budget = RestartBudget(1, lambda: states[-1])
    for step in (5, 10):
        states.append(SavedStep(step, "1 worker"))
        assert [budget.spend(), budget.spend()] == [True, False]
    states.append(SavedStep(5, "1 worker"))  # of a try that began at an earlier save
    assert budget.is_used_up()
    states.append(SavedStep(57, "2 workers"))
    assert budget.is_used_up()


def test_restarts_of_a_service():
    steps = [5]
    budget = make_budget(3, steps)
    assert budget.spend()
    budget.spend_all()
    assert budget.is_used_up()
    budget.spend_all()
    steps.append(6)
    assert not budget.is_used_up()


def test_none_is_allowed():
    assert not make_budget(0, [100]).spend()
