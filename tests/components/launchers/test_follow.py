"""Tests the loop that follows the training of any launcher, by a clock of its own.

And how often and how soon a training is started again.
"""

import logging
from dataclasses import replace

import pytest

from tfx_distribute.components.launchers import launcher as launcher_lib
from tfx_distribute.components.launchers.errors import NoRoomError, NotFollowedError
from tfx_distribute.components.launchers.launcher import Failure, Launcher, Limits, Restarts, State, follow
from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.trainer_module.errors import TrainingError

QUEUED, STARTING, RUNNING = State("queued", "in a queue"), State("starting", "0 of 2 pods"), State("running", "trains")
SUCCEEDED = State("succeeded", "done")
FAILED, FAILED_FOR_GOOD = (State("failed", "failed", Failure("it died", is_final)) for is_final in (False, True))

DIED = Failure("training process worker 0 failed (killed by SIGKILL)\n  its last line")


class Scripted(Launcher):
    """Goes through states, one at each look; the last stays.

    Args:
      states: The states. An exception among them is raised.
      news: What the platform says at each look.
    """

    def __init__(self, states, news=()):
        super().__init__(None)
        self._states, self._news = list(states), news
        self.starts, self.stops = 0, []

    def request(self, training):
        return {}

    def start(self, request, has_result):
        self.starts += 1
        return not has_result

    def state(self):
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(state, BaseException):
            raise state
        return state

    def news(self):
        return list(self._news)

    def stop(self, has_time):
        self.stops.append(has_time)


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Makes two looks ten seconds apart, which pass at once; returns the waits."""
    waited = []

    class Time:
        monotonic = staticmethod(lambda: 10.0 * len(waited))
        sleep = staticmethod(waited.append)

    monkeypatch.setattr(launcher_lib, "time", Time)
    return waited


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, logger="absl")
    return lambda level: [record.getMessage() for record in caplog.records if record.levelname == level]


def run(launcher, **limits):
    follow(launcher, {}, Limits(Restarts(1), **limits))


def test_a_state_is_logged_when_it_changes_and_each_news_once(logged):
    news = ["Warning: no node fits"]
    launcher = Scripted([STARTING, STARTING, RUNNING, RUNNING, SUCCEEDED], news)
    run(launcher)
    assert logged("INFO") == ["0 of 2 pods", "trains", "done"]
    assert logged("WARNING") == news
    assert launcher.stops == []


def test_time_in_a_queue_does_not_count():
    run(Scripted([*[QUEUED] * 100, STARTING, RUNNING, SUCCEEDED]), start_seconds=30, deadline_seconds=60)


@pytest.mark.parametrize(
    ("states", "news", "message"),
    [
        ([QUEUED, STARTING], [], r"not started within 30 s \(start_timeout_seconds\): 0 of 2 pods$"),
        ([STARTING], ["no node fits", "no image"], r"\(start_timeout_seconds\): no node fits\nno image$"),
        ([STARTING, RUNNING, STARTING], [], "0 of 2 pods$"),
    ],
)
def test_a_training_that_does_not_start_in_time(states, news, message):
    launcher = Scripted(states, news)
    with pytest.raises(NoRoomError, match=message):
        run(launcher, start_seconds=30)
    assert launcher.stops == [True]


def test_a_training_that_takes_too_long():
    launcher = Scripted([QUEUED, RUNNING])
    with pytest.raises(TrainingError, match=r"takes longer than 60 s \(active_deadline_seconds\)"):
        run(launcher, start_seconds=30, deadline_seconds=60)
    assert launcher.stops == [True]


def test_the_deadline_is_that_of_all_starts():
    launcher = Scripted([RUNNING, RUNNING, RUNNING, RUNNING, FAILED, RUNNING])
    with pytest.raises(TrainingError, match="takes longer than 60 s"):
        run(launcher, deadline_seconds=60)
    assert launcher.starts == 2


def test_a_training_that_succeeds_after_a_restart():
    launcher = Scripted([RUNNING, FAILED, STARTING, SUCCEEDED])
    run(launcher)
    assert (launcher.starts, launcher.stops) == (2, [])


@pytest.mark.parametrize(("failed", "starts"), [(FAILED, 2), (FAILED_FOR_GOOD, 1)])
def test_a_training_that_has_failed_stays_to_be_looked_at(failed, starts):
    launcher = Scripted([RUNNING, failed])
    with pytest.raises(TrainingError, match="^it died"):
        run(launcher)
    assert (launcher.starts, launcher.stops) == (starts, [])


@pytest.mark.parametrize(("error", "has_time"), [(KeyboardInterrupt(), False), (NotFollowedError("no answer"), True)])
def test_a_training_that_is_not_followed_any_more_is_stopped(error, has_time):
    launcher = Scripted([RUNNING, error])
    with pytest.raises(type(error)):
        run(launcher)
    assert launcher.stops == [has_time]


def test_a_training_that_has_to_end_is_stopped_as_by_a_signal():
    launcher = Scripted([RUNNING])
    with pytest.raises(TerminatedError):
        run(launcher, is_stopped=lambda: True)
    assert launcher.stops == [False]


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
