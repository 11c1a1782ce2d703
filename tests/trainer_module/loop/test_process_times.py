"""Tests how time is measured, and that a slow process is found."""

import time

import pytest

from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.time_use import BUSY_CORE
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule
from tfx_distribute.trainer_module.loop import process_times
from tfx_distribute.trainer_module.reporting import history

TWO_WORKERS = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu")
SLOW = """
import json, os, threading, time
import numpy as np
import tensorflow as tf
from model import build_model

def is_slow():
    return json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "worker"

ONE_AT_A_TIME = threading.Lock()  # as of a storage: tf.data calls from many threads

def sleep(seconds):
    with ONE_AT_A_TIME:
        time.sleep(float(seconds))
    return np.float64(0.0)

def augment(features, label, seed):
    if not is_slow():
        return features, label
    with tf.control_dependencies([tf.numpy_function(sleep, [0.002], tf.float64, stateful=True)]):
        return {"pixels": tf.identity(features["pixels"])}, label
"""


@pytest.mark.e2e
def test_the_slow_one_of_two_workers_is_named(cluster, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    result = cluster.train(
        TWO_WORKERS,
        TrainingOptions(32, train_steps=100, steps_per_epoch=50),
        module=UserModule("slow.build_model", (str(tmp_path), *cluster.job.module.search_path)),
    )
    time_use = result.time_use
    assert time_use.slowest == "worker-0", time_use
    # Beside other tests on few cores it may wait for a core for longer than it sleeps.
    assert time_use.reason in ("input", BUSY_CORE), time_use
    slow, fast = (next(p for p in time_use.processes if p.task == task) for task in ("worker-0", "chief-0"))
    assert slow.seconds["input"] > 4.0, "it slept for 5 s or more"
    assert slow.seconds["input"] > 2.0 * fast.seconds["input"]
    assert fast.seconds["wait_for_peers"] > 2.0 * slow.seconds["wait_for_peers"]
    messages = [progress.message for task, progress in cluster.reports if task.role == "chief"]
    assert any(message.startswith("worker 0 holds the others back for ") for message in messages)

    records = history.read(cluster.job.outputs.model_run_dir)
    assert {record.task for record in records} == {"chief-0", "worker-0"}
    from_history = history.time_use(records)
    assert (from_history.slowest, from_history.reason) == (time_use.slowest, time_use.reason)
    epochs = [record for record in records if record.phase == "epoch" and record.task == "chief-0"]
    assert [(record.epoch, record.epochs, record.step) for record in epochs] == [(1, 2, 50), (2, 2, 100)]
    assert "val_loss" in epochs[0].metrics
    assert epochs[0].learning_rate == pytest.approx(0.002)
    assert records[-1].phase == "done"


class Two:
    """A meter, and the peers of two processes. One becomes slow after a day."""

    minute = 0

    def seconds(self):
        return {}

    counters = seconds

    def gather(self, row):
        late = max(0.0, 60.0 * (self.minute - 24 * 60))
        even = 60.0 * self.minute - late
        return [
            process_times.encode(ClusterTask("chief", 0), {"compute": even + late / 2, "wait_for_peers": late / 2}, {}),
            process_times.encode(ClusterTask("worker", 0), {"compute": even + late}, {"cpu_wait_seconds": late}),
        ]


def test_a_process_that_becomes_slow_late_is_named_soon(monkeypatch):
    two = Two()
    monkeypatch.setattr(process_times.time, "monotonic", lambda: 60.0 * two.minute)
    times, remarks = process_times.ProcessTimes(two), []
    for two.minute in range(1, 24 * 60 + 11):
        times.gather(two)
        remarks += [(two.minute, times.remark)] if times.remark else []
    ((minute, remark),) = remarks
    assert minute <= 24 * 60 + 10
    assert remark.startswith("worker 0 holds the others back for ")


def test_times_travel_as_numbers():
    rows = [
        process_times.encode(ClusterTask("worker", 1), {"input": 1.5, "compute": 2.0}, {"cpu_seconds": 3.0}),
        process_times.encode(ClusterTask("worker", 1), {"input": 1.5, "compute": 2.0}, {"cpu_seconds": 3.0}),
        process_times.encode(ClusterTask("chief", 0), {"input": 0.5}, {}),
    ]
    chief, worker = process_times.decode(rows)
    assert (chief.task, chief.seconds, chief.counters) == ("chief-0", {"input": 0.5}, {})
    assert (worker.task, worker.seconds, worker.counters) == (
        "worker-1",
        {"input": 1.5, "compute": 2.0},
        {"cpu_seconds": 3.0},
    )


def test_no_more_is_moved_than_the_latest_block_has_taken():
    """The clock is set forward by an hour during a call."""
    meter = process_times.TimeMeter()
    for _ in range(2):
        with meter.spending("compute"):
            time.sleep(0.02)
    seconds = meter.seconds()["compute"]
    meter.move("compute", "other", 3600.0)
    meter.move("compute", "input", 3600.0)
    after = meter.seconds()
    assert after["compute"] >= 0.02, "the first block"
    assert after["input"] == 0.0, "all of the second block was moved before"
    assert seconds - after["compute"] >= 0.019, "the second block, which may have taken longer"
