"""Tests how restarts of a training are counted."""

from tfx_distribute.components.launchers.restart_budget import RestartBudget


def test_the_count_begins_again_when_training_has_advanced():
    steps = [0]
    budget = RestartBudget(2, lambda: steps[-1])
    assert [budget.spend(), budget.spend(), budget.spend()] == [True, True, False]
    steps.append(10)
    assert [budget.spend(), budget.spend(), budget.spend()] == [True, True, False]
    steps.append(9)  # of a try that began at an earlier save
    assert budget.is_used_up()
    steps.append(11)
    assert not budget.is_used_up()
    assert budget.used == 0


def test_restarts_of_a_service():
    steps = [5]
    budget = RestartBudget(3, lambda: steps[-1])
    assert budget.spend()
    budget.spend_all()
    assert budget.is_used_up()
    budget.spend_all()
    steps.append(6)
    assert not budget.is_used_up()


def test_none_is_allowed():
    assert not RestartBudget(0, lambda: 100).spend()
