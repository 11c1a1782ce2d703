"""Tests how often and how soon a cluster is started again."""

import pytest

from tfx_distribute.components.launchers.local import restart_policy as restarts_lib
from tfx_distribute.components.launchers.local.processes import ClusterFailure
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.lifecycle.progress import Progress
from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep

DIED = ClusterFailure("training process worker 0 failed (killed by SIGKILL)\n  its last line", final=False)
OUT_OF_MEMORY = ClusterFailure("training process chief failed (exit code 137)", final=False, out_of_memory=True)

STUCK = ClusterFailure("worker 0 made no progress for 3600 s in build_model", final=False, stuck=True)


@pytest.fixture
def waits(monkeypatch):
    seconds = []
    monkeypatch.setattr(restarts_lib.time, "sleep", seconds.append)
    return seconds


def make_policy(max_restarts, on_progress, saved=(0,)):
    """Returns a policy for a training whose last saved step is the last of `saved`."""
    return restarts_lib.RestartPolicy(RestartBudget(max_restarts, lambda: SavedStep(saved[-1])), on_progress)


def test_limit_and_reports(waits):
    messages = []
    restarts = make_policy(2, lambda task, progress: messages.append(progress.message))
    assert [restarts.allow(DIED) for _ in range(3)] == [True, True, False]
    assert messages == [
        "training process worker 0 failed (killed by SIGKILL); restart 1 of 2",
        "training process worker 0 failed (killed by SIGKILL); restart 2 of 2",
    ]
    assert restarts.describe(DIED) == f"{DIED.message}\nAll 2 restarts (max_restarts) are used up"


def test_restarts_after_progress_do_not_add_up(waits):
    saved = [0]
    restarts = make_policy(1, lambda task, progress: None, saved)
    for step in range(10, 50, 10):
        saved.append(step)
        assert restarts.allow(DIED)
    restarts.listen(CHIEF_TASK, Progress("train", step=45))
    assert not restarts.allow(DIED), "steps that are not saved are lost"
    assert waits == []


def test_without_restarts_the_message_does_not_mention_them():
    restarts = make_policy(0, lambda task, progress: None)
    assert not restarts.allow(DIED)
    assert restarts.describe(DIED) == DIED.message


def test_waits_longer_and_longer_without_progress(waits):
    saved = [10]
    restarts = make_policy(20, lambda task, progress: None, saved)
    for _ in range(8):
        restarts.allow(DIED)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    saved.append(11)
    assert restarts.allow(DIED)
    assert len(waits) == 7, "restarts at once after some progress"


def test_process_that_is_stuck_at_the_same_training_step_again(waits):
    restarts = make_policy(20, lambda task, progress: None)
    assert restarts.allow(STUCK)
    restarts.listen(CHIEF_TASK, Progress("train", step=10))
    assert restarts.allow(STUCK), "another training step"
    assert not restarts.allow(STUCK)
    assert restarts.describe(STUCK) == f"{STUCK.message}\nIt made no progress at the same training step again"


def test_lack_of_memory_is_retried_once_at_a_training_step(waits):
    restarts = make_policy(20, lambda task, progress: None)
    restarts.listen(CHIEF_TASK, Progress("train", step=10))
    assert restarts.allow(OUT_OF_MEMORY)
    restarts.listen(CHIEF_TASK, Progress("train", step=12))
    assert restarts.allow(OUT_OF_MEMORY), "another training step"
    restarts.listen(ClusterTask("evaluator", 0), Progress("evaluate", step=100))
    assert not restarts.allow(OUT_OF_MEMORY)
    assert "ran out of memory at the same training step again" in restarts.describe(OUT_OF_MEMORY)
