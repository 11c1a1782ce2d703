"""Tests jobs that wait in queues of the real Kueue, with their launcher."""

import functools
import re
import uuid

import pytest
from cluster_queues import PRIORITY_LABEL, queue
from real_cluster import wait_until

from tfx_distribute.components.launchers.kubernetes import launcher
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ONE_CPU = {"resources": {"requests": {"cpu": "100m"}}}  # of the two CPUs of the queue, each of which is 100m


@pytest.fixture(scope="module", autouse=True)
def team(namespace):
    """Provides a queue with room for two pods."""
    with queue(namespace, "team", "cpu", "200m"):
        yield


@pytest.fixture
def start(namespace, start_job):
    """Returns a function that starts a job of each kind in the queue."""
    wait_until(lambda: not namespace.pods())  # those of the test before
    return functools.partial(start_job, **{"queue": "team", **ONE_CPU})


def until(file):
    return f"while ! test -e {file}; do sleep 0.2; done"


@pytest.fixture
def file():
    return f"/shared/{uuid.uuid4().hex}"


def test_a_job_waits_until_there_is_room(start, file, caplog):
    caplog.set_level("INFO", logger="absl")
    first = start(until(file), of=JOB_KINDS["jobset"])
    first.wait_for_running()
    second = start("exit 0", workers=2, max_restarts=0)
    words = f"{second.kind.title} {second.name} waits in queue team: couldn't assign flavors to pod set"
    wait_until(lambda: words in caplog.text)
    assert "insufficient unused quota for cpu" in caplog.text
    assert f"{second.kind.title} {second.name}: suspended" in caplog.text
    assert second.is_running
    first.touch(file)
    assert (first.wait(), second.wait()) == (None, None)


def test_a_job_that_is_preempted_goes_on_later(start, namespace, file, caplog):
    """It uses up no restart: it has none."""
    caplog.set_level("INFO", logger="absl")
    job = start(f"echo starts; {until(file)}", workers=2, max_restarts=0)
    job.wait_for_running(2)
    urgent = start("sleep 5", of=JOB_KINDS["jobset"], labels={PRIORITY_LABEL: namespace.name}, workers=2)
    wait_until(
        lambda: re.search(f"{job.kind.title} {job.name} waits in queue team: .*Preempted to accommodate", caplog.text)
    )
    assert urgent.wait() is None
    job.wait_for_running(2)
    job.touch(file)
    assert job.wait() is None
    assert caplog.text.count("chief: starts") == 2


def test_a_queue_that_is_not_there(start):
    job = start("exit 0", queue="nobody")
    error = job.wait(60)
    assert isinstance(error, TrainingError)
    assert "LocalQueue nobody doesn't exist" in str(error)
    wait_until(lambda: not job.job)


def test_a_kind_that_kueue_does_not_manage(start, namespace, monkeypatch):
    """It would run past the queue."""
    monkeypatch.setattr(launcher, "QUEUE_LABEL", "team")  # which the job has, and Kueue does not read
    error = start("exit 0", queue=None, labels={"team": "a"}).wait(60)
    assert isinstance(error, ConfigurationError)
    assert "of this cluster do not wait in queues" in str(error)
