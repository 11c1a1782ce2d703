"""Tests that a training ends by itself when no pipeline step follows it any more."""

import json
import os
import threading
from dataclasses import replace

import pytest
from running import wait_until
from single_processes import SingleProcesses

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions
from tfx_distribute.trainer_module.liveness import exit_codes, lease
from tfx_distribute.trainer_module.liveness.failure_report import Failure


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(timeouts, "ABANDONED_SECONDS", 1.0)


def test_signs_of_life_say_when(tmp_path):
    path = str(tmp_path / "followed.json")
    assert lease.last_renewal(path) is None
    held = lease.Lease(path)
    held.take()
    first = lease.last_renewal(path)
    held.renew()
    assert first is not None
    assert (lease.last_renewal(path) or 0) >= first
    (tmp_path / "followed.json").write_text("damaged")
    assert lease.last_renewal(path) is None
    assert not held.is_lost()


def test_another_process_takes_the_lease(tmp_path):
    path = str(tmp_path / "followed.json")
    first, second = lease.Lease(path), lease.Lease(path)
    first.take()
    second.take()
    document = (tmp_path / "followed.json").read_text()
    first.renew()
    assert (tmp_path / "followed.json").read_text() == document, "it is not renewed for the second"
    assert (first.is_lost(), second.is_lost()) == (True, False)


def test_whoever_is_followed_stays(quick, tmp_path):
    path = str(tmp_path / "followed.json")
    held = lease.Lease(path)
    left = threading.Event()
    ended = threading.Event()

    def renew() -> None:
        for _ in range(20):  # twice as long as it takes to leave
            held.renew()
            ended.wait(0.1)

    thread = threading.Thread(target=renew)
    thread.start()
    threading.Thread(target=lease._watch, args=(path, timeouts.ABANDONED_SECONDS, left.set), daemon=True).start()
    thread.join()
    assert not left.is_set()
    wait_until(left.is_set)  # nobody renews it now


def test_a_file_that_never_comes_is_no_sign_of_life(quick, tmp_path):
    left = threading.Event()
    lease._watch(str(tmp_path / "followed.json"), timeouts.ABANDONED_SECONDS, left.set)
    assert left.is_set()


@pytest.mark.e2e
def test_a_chief_that_nobody_follows_saves_and_leaves(cluster, forked_trainings, tmp_path):
    job = replace(
        cluster.job,
        training_options=TrainingOptions(32, train_steps=1_000_000, steps_per_execution=20),
        outputs=replace(cluster.job.outputs, checkpoint_dir=str(tmp_path / "state")),
    )
    with SingleProcesses(forked_trainings, job, tmp_path, has_lease=True) as processes:
        processes.start("chief", "from tfx_distribute.trainer_module import timeouts; timeouts.ABANDONED_SECONDS = 8.0")
        code = processes.wait(120)["chief"]
    assert code == exit_codes.ABANDONED, processes.output("chief")
    assert exit_codes.is_final(code), "controllers must not start it again"
    assert "no pipeline step has followed this training for 8 s, so it ends" in processes.output("chief")
    assert list((tmp_path / "state").iterdir()), "it has saved what it had"


@pytest.mark.e2e
def test_processes_whose_peers_have_no_machine_leave_when_nobody_follows(cluster, forked_trainings, tmp_path):
    """Until then they wait: a limit of their own would fail the training."""
    settings = (
        "from tfx_distribute.trainer_module import timeouts; "
        "timeouts.ABANDONED_SECONDS, timeouts.AFTER_CHIEF_SECONDS = 5.0, 2.0"
    )
    roles = ("ps", "chief")
    job = replace(cluster.job, distribution=Distribution("parameter_server", num_workers=1))
    with SingleProcesses(forked_trainings, job, tmp_path, has_lease=True) as processes:
        for role in roles:
            processes.start(role, settings)
        assert processes.wait(120) == dict.fromkeys(roles, exit_codes.ABANDONED), [*map(processes.output, roles)]
    for role in roles:
        seconds = 5 if role == "chief" else 7
        assert f"for {seconds} s, so it ends" in processes.output(role), "the chief is the first to leave"


@pytest.mark.e2e
def test_a_training_that_has_failed_for_good_is_not_begun_again(cluster, forked_trainings, tmp_path):
    """Vertex AI restarts a process and its peers, whatever its exit code."""
    (tmp_path / "job.json").write_text(cluster.job.to_json())
    error_file = str(tmp_path / "error.json")
    Failure("hidden_units: is missing", expected=True).write(error_file)
    words = ["-m", "tfx_distribute.trainer_module", "--job", tmp_path / "job.json"]
    with (tmp_path / "log").open("wb") as log:
        process = forked_trainings.start(words, {**os.environ, "TFX_DISTRIBUTE_ERROR": error_file}, tmp_path, log)
        assert process.wait(120) == exit_codes.FAILED
    assert "this training has failed already: hidden_units: is missing" in (tmp_path / "log").read_text()
    assert json.loads((tmp_path / "error.json").read_text())["message"] == "hidden_units: is missing", "the first one stays"
