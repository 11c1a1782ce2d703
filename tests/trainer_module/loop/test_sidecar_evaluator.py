"""Tests what a training and its evaluator exchange, and a training without it."""

import json
import signal
import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest
import tensorflow as tf
from single_processes import SingleProcesses

from tfx_distribute.trainer_module import atomic_files, timeouts
from tfx_distribute.trainer_module.job.cluster import ClusterTask, replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, TrainingResult
from tfx_distribute.trainer_module.liveness import lease
from tfx_distribute.trainer_module.liveness.peer_loss import ChiefMonitor
from tfx_distribute.trainer_module.loop import sidecar_evaluator
from tfx_distribute.trainer_module.loop.sidecar_evaluator import (
    Exchange,
    SidecarCheckpointWriter,
    wait_for_exchange,
)


def test_evaluator_counts_the_replicas_that_the_chief_has(tmp_path, monkeypatch):
    """For example four, on two workers that use all GPUs (accelerator_count is 0)."""
    task = ClusterTask("evaluator", 0)
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
    SidecarCheckpointWriter(tf.keras.Sequential([tf.keras.layers.Dense(1)]), str(tmp_path), is_chief=True, num_replicas=4)
    assert wait_for_exchange(str(tmp_path), ChiefMonitor(task), task).num_replicas == 4


@pytest.mark.parametrize("has_come", [True, False])
def test_evaluator_that_starts_after_the_end_has_nothing_to_do(tmp_path, monkeypatch, has_come):
    monkeypatch.setattr(timeouts, "EVALUATOR_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(timeouts, "EVALUATOR_POLL_SECONDS", 0.05)
    Exchange("folder", 2).write(str(tmp_path))
    sidecar_evaluator.announce_end(str(tmp_path))
    chief_monitor = Mock(**{"has_gone.return_value": has_come})
    assert wait_for_exchange(str(tmp_path), chief_monitor, ClusterTask("evaluator", 0)) is None


@pytest.fixture
def writer(tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build((None, 1))
    made = SidecarCheckpointWriter(model, str(tmp_path), is_chief=True, num_replicas=1)
    made.save(4)
    return made


def test_chief_waits_while_the_evaluator_shows_life(writer, tmp_path, monkeypatch):
    """The last evaluation may take hours."""
    monkeypatch.setattr(timeouts, "EVALUATOR_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "EVALUATOR_POLL_SECONDS", 0.05)
    finished = []
    thread = threading.Thread(target=lambda: finished.append(writer.finish()))
    thread.start()
    for _ in range(20):
        lease.Lease(str(tmp_path / "evaluator.alive")).take()
        thread.join(0.1)
    assert thread.is_alive()
    (folder,) = (tmp_path / "evaluator").iterdir()
    atomic_files.write(str(folder / "metrics-4"), '{"loss": 0.5}')
    thread.join(20)
    assert finished == [{"loss": 0.5}]


def test_chief_does_not_wait_for_an_evaluator_without_life(writer, tmp_path, monkeypatch):
    monkeypatch.setattr(timeouts, "EVALUATOR_SILENT_SECONDS", 0.2)
    assert writer.finish() is None
    (folder,) = (tmp_path / "evaluator").iterdir()
    assert not list(folder.iterdir()), "an evaluator that comes now has nothing left to do"


def test_an_error_of_a_hand_over_ends_the_training(writer, monkeypatch):
    def lose(*_, **__):
        raise tf.errors.UnavailableError(None, None, "failed to connect to all addresses")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", lose)
    with pytest.raises(tf.errors.UnavailableError):
        writer.save(5)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "distribution",
    [
        Distribution("multi_worker_mirrored", num_workers=2, num_evaluators=1, accelerator_type="cpu"),
        Distribution("parameter_server", num_workers=1, num_evaluators=1, accelerator_type="cpu"),
    ],
    ids=lambda distribution: distribution.strategy,
)
def test_model_is_not_lost_without_an_evaluator(cluster, forked_trainings, tmp_path, distribution):
    """The cluster refuses its pod, for instance."""
    job = replace(
        cluster.exporting().job,
        distribution=distribution,
        training_options=TrainingOptions(32, epochs=2, export_best="val_loss"),
        outputs=replace(cluster.job.outputs, checkpoint_dir=str(tmp_path / "state")),
    )
    settings = "from tfx_distribute.trainer_module import timeouts; timeouts.EVALUATOR_SILENT_SECONDS = 1.0"
    roles = [role for role in replicas_of_roles(distribution) if role != "evaluator"]
    with SingleProcesses(forked_trainings, job, tmp_path) as processes:
        for role in roles:
            processes.start(role, settings)
        assert processes.wait() == dict.fromkeys(roles, 0), processes.output("chief")
    output = processes.output("chief")
    assert "the evaluator has shown no sign of life for 1 s: the training processes evaluate the last epoch" in output
    result = TrainingResult.from_json((tmp_path / "result.json").read_text())
    assert result.best.epoch == 2
    assert result.best.value == result.metrics["val_loss"]
    examples = tf.data.TFRecordDataset(job.data.eval.files, "GZIP").batch(397).get_single_element()
    labels = tf.io.parse_example(examples, {"digit": tf.io.FixedLenFeature([1], tf.int64)})["digit"]
    model = tf.saved_model.load(job.outputs.serving_model_dir)
    probabilities = model.signatures["serving_default"](examples)["outputs"]
    accuracy = tf.reduce_mean(tf.keras.metrics.sparse_categorical_accuracy(labels, probabilities))
    assert result.metrics["val_accuracy"] == pytest.approx(float(accuracy), abs=1e-6)


@pytest.mark.e2e
def test_evaluator_that_outlives_its_chief_evaluates_again(cluster, forked_trainings, tmp_path):
    """It has evaluated the last epoch already when the chief is lost."""
    options = TrainingOptions(32, epochs=2)
    distribution = Distribution("multi_worker_mirrored", num_workers=1, num_evaluators=1, accelerator_type="cpu")
    job = replace(cluster.exporting().job, distribution=distribution, training_options=options)
    lost = (
        "import os, signal; from tfx_distribute.trainer_module import export; "
        "export.export = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
    )
    with SingleProcesses(forked_trainings, job, tmp_path) as processes:
        processes.start("evaluator", "timeouts.CHIEF_GONE_SECONDS = 100.0")
        processes.start("chief", lost)
        assert processes.end_of("chief") == -signal.SIGKILL, processes.output("chief")
        processes.start("chief")
        assert processes.wait(100) == {"evaluator": 0, "chief": 0}, processes.output("evaluator")
    assert processes.output("evaluator").count('"phase": "evaluate", "step": 2') == 2
    assert "training processes evaluate" not in processes.output("chief")
