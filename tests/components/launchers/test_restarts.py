"""Tests how often and how soon a training is started again."""

from dataclasses import replace

import pytest

from tfx_distribute.components.launchers import restarts as restarts_lib
from tfx_distribute.components.launchers.restarts import Failure, Restarts

DIED = Failure("training process worker 0 failed (killed by SIGKILL)\n  its last line")


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Returns the seconds that have been waited."""
    seconds = []
    monkeypatch.setattr(restarts_lib.time, "sleep", seconds.append)
    return seconds


def make_restarts(max_restarts, saved=(0,), tell=lambda words: None):
    """Returns restarts of a training whose last saved step is the last of `saved`."""
    return Restarts(max_restarts, lambda: saved[-1], tell)


def test_limit_and_reports():
    told = []
    restarts = make_restarts(2, tell=told.append)
    assert [restarts.allow(DIED) for _ in range(3)] == [True, True, False]
    assert told == [
        "training process worker 0 failed (killed by SIGKILL); restart 1 of 2",
        "training process worker 0 failed (killed by SIGKILL); restart 2 of 2",
    ]
    assert restarts.describe(DIED) == f"{DIED.message}\nAll 2 restarts (max_restarts) are used up"
    final = replace(DIED, is_final=True)
    assert restarts.describe(final) == DIED.message


def test_without_restarts_the_message_does_not_mention_them():
    restarts = make_restarts(0, [100])
    assert not restarts.allow(DIED)
    assert restarts.describe(DIED) == DIED.message


def test_the_count_begins_again_when_training_has_advanced():
    saved = [0]
    restarts = make_restarts(2, saved)
    assert [restarts.allow(DIED) for _ in range(3)] == [True, True, False]
    saved.append(10)
    assert [restarts.allow(DIED) for _ in range(3)] == [True, True, False]
    saved.append(9)  # of a try that began at an earlier save
    assert not restarts.allow(DIED)
    saved.append(11)
    assert restarts.allow(DIED)


def test_restarts_of_a_platform():
    """It has made as many by itself as it was allowed."""
    saved = [5]
    restarts = make_restarts(3, saved)
    failure = replace(DIED, has_restarted=True)
    assert not restarts.allow(failure)
    saved.append(6)
    assert restarts.allow(failure), "after a save"
    assert not restarts.allow(failure)


def test_waits_longer_and_longer_without_progress(waits):
    saved = [10]
    restarts = make_restarts(20, saved)
    for _ in range(8):
        restarts.allow(DIED)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    saved.append(11)
    assert restarts.allow(DIED)
    assert len(waits) == 7, "restarts at once after some progress"
