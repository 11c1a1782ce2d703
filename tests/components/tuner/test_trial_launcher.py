"""Tests how trials are launched on other machines."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from own_launcher import SshSettings
from running import wait_until
from tfx.types import standard_artifacts

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import registry
from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.trainer import remote_training
from tfx_distribute.components.tuner.trial_launcher import trial_launcher
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    TrainingJob,
    TrainingOptions,
    TrainingResult,
    UserModule,
)
from tfx_distribute.trainer_module.liveness import lease

JOB = TrainingJob(UserModule("model.build_model"), None, Distribution(), TrainingOptions(epochs=1), Outputs("", "", ""))


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Returns a function that trains the job of a trial."""
    monkeypatch.setitem(registry.LAUNCHERS, "ssh", "own_launcher:SshLauncher")
    settings = SshSettings("digits", training="ssh", training_dir=str(tmp_path / "shared"))
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    os.makedirs(examples.uri)
    properties = {"launcher": registry.to_json(settings), "build_model": "model.build_model"}
    with trial_launcher({"examples": [examples]}, properties, Distribution(), str(tmp_path / "best"), 2) as launcher:
        yield launcher.launch


def test_each_trial_has_a_lease_that_is_renewed_while_it_is_followed(launch, monkeypatch):
    monkeypatch.setattr(timeouts, "LEASE_RENEW_SECONDS", 0.05)
    leases = []

    def count_renewals(path: str, seconds: float) -> int:
        seen, deadline = set(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            seen.add(atomic_files.read(path))
            time.sleep(0.01)
        return len(seen)

    def train(job, training, name, folder, is_lost, is_stopped):
        leases.append(training.lease_file)
        assert os.path.dirname(leases[-1]) == folder
        assert count_renewals(leases[-1], 1.0) > 2
        assert not is_lost()
        if len(leases) == 1:
            raise TrainingError("the job cannot be followed, and could not be deleted")
        assert count_renewals(leases[0], 0.5) == 1, "the lease of the trial before is not renewed any more"
        lease.Lease(training.lease_file).take()
        wait_until(is_lost)
        return TrainingResult(1, 32, 10, 1.0, {})

    monkeypatch.setattr(remote_training, "launch", train)
    with pytest.raises(TrainingError):
        launch(JOB, "0")
    assert launch(JOB, "1").train_steps == 10
    assert len(set(leases)) == 2


def seen_gpus(monkeypatch, available, count, distribution):
    """Returns the GPUs that each of several trials sees on this machine."""
    meeting, seen = threading.Barrier(count), []

    def train(job, work_dir, is_stopped):
        seen.append(local_launcher.current_settings().gpus)
        meeting.wait(10)

    monkeypatch.setattr(local_launcher, "launch", train)
    with (
        local_launcher.settings(replace(local_launcher.current_settings(), gpus=available)),
        trial_launcher({}, {}, distribution, "/best", count) as launcher,
        ThreadPoolExecutor(count) as threads,
    ):
        for _ in range(2):
            list(threads.map(lambda trial: launcher.launch(JOB, str(trial)), range(count)))
    return seen


def test_trials_of_one_machine_share_no_gpu(monkeypatch):
    gpus = ("0", "1", "2", "GPU-7", "4")
    first = seen_gpus(monkeypatch, gpus, 2, Distribution("one_device"))
    assert set(first[:2]) == set(first[2:]) == {("0", "1"), ("2", "GPU-7")}
    assert seen_gpus(monkeypatch, gpus, 1, Distribution("mirrored")) == [gpus] * 2
    assert seen_gpus(monkeypatch, (), 3, Distribution("one_device")) == [()] * 6
    on_cpu = Distribution("one_device", accelerator_type="cpu")
    assert seen_gpus(monkeypatch, ("0",), 2, on_cpu) == [("0",)] * 4
    workers = Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=1)
    assert len(set(seen_gpus(monkeypatch, gpus, 2, workers))) == 2
    assert seen_gpus(monkeypatch, ("0",), 2, workers) == [("0",)] * 4, "there are too few for one"


@pytest.mark.parametrize(
    ("distribution", "problem"),
    [
        (Distribution("mirrored"), "3 trials at the same time need 1 GPUs each, and this machine has 2; write 2, or acc"),
        (
            Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=1),
            "3 trials at the same time need 2 GPUs each, and this machine has 2; write 1, or accelerator_type: cpu",
        ),
        (Distribution("tpu"), "trials at the same time cannot share this machine's TPU; write 1$"),
    ],
)
def test_too_few_devices_for_trials_at_the_same_time(monkeypatch, distribution, problem):
    with pytest.raises(ConfigurationError, match=f"^tune.num_parallel_trials: {problem}"):
        seen_gpus(monkeypatch, ("0", "1"), 3, distribution)
