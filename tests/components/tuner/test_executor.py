"""Tests what trials of one machine that train at the same time get of it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from training import make_job

from tfx_distribute.components.launchers.local import launcher as local_launcher
from tfx_distribute.components.trainer.places import open_place
from tfx_distribute.components.tuner.executor import share_machine
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Distribution


def seen_gpus(monkeypatch, available, count, distribution):
    """Returns the GPUs that each of several trials sees on this machine."""
    meeting, seen = threading.Barrier(count), []

    def train(job, work_dir, is_stopped):
        seen.append(local_launcher.current_settings().gpus)
        meeting.wait(10)

    monkeypatch.setattr(local_launcher, "launch", train)
    with (
        local_launcher.settings(replace(local_launcher.current_settings(), gpus=available)),
        open_place({}, {}, {}, distribution, "/best") as place,
        ThreadPoolExecutor(count) as threads,
    ):
        launch = share_machine(place, distribution, count)
        for _ in range(2):
            list(threads.map(lambda trial: launch(make_job(), str(trial), lambda: False), range(count)))
    return seen


def test_trials_of_one_machine_share_no_gpu(monkeypatch):
    gpus = ("0", "1", "2", "GPU-7", "4")
    first = seen_gpus(monkeypatch, gpus, 2, Distribution("one_device"))
    assert set(first[:2]) == set(first[2:]) == {("0", "1"), ("2", "GPU-7")}
    assert seen_gpus(monkeypatch, (), 3, Distribution("one_device")) == [()] * 6
    on_cpu = Distribution("one_device", accelerator_type="cpu")
    assert seen_gpus(monkeypatch, ("0",), 2, on_cpu) == [("0",)] * 4
    workers = Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=1)
    assert len(set(seen_gpus(monkeypatch, gpus, 2, workers))) == 2
    assert seen_gpus(monkeypatch, ("0",), 2, workers) == [("0",)] * 4, "there are too few for one"


@pytest.mark.parametrize(
    ("distribution", "problem"),
    [
        (Distribution("tpu"), "trials at the same time cannot share a machine's TPU; write 1$"),
        (Distribution("mirrored"), "3 trials at the same time need 1 GPUs each, and this machine has 2; write 2, or acc"),
        (
            Distribution("multi_worker_mirrored", num_workers=2, accelerator_count=1),
            "3 trials at the same time need 2 GPUs each, and this machine has 2; write 1, or accelerator_type: cpu",
        ),
    ],
)
def test_too_few_devices_for_trials_at_the_same_time(monkeypatch, distribution, problem):
    with pytest.raises(ConfigurationError, match=f"^tune.num_parallel_trials: {problem}"):
        seen_gpus(monkeypatch, ("0", "1"), 3, distribution)
