"""Processes of real clusters die, hang, or are told to leave; nothing that was saved is lost, and nothing stays behind."""

import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.components.launchers import local
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job import Distribution, Recovery, Schedule, UserModule

pytestmark = pytest.mark.e2e

TESTS = Path(__file__).resolve().parents[1]
MODULE = UserModule("faulty.build_model", (str(TESTS / "modules"), str(TESTS.parent / "examples" / "digits")))
SCHEDULE = Schedule(32, epochs=2)
STEPS = 88  # of one replica: two epochs of 44
EVERY = 10
STRATEGIES = {
    "default": Distribution(accelerator_type="cpu"),
    "mirrored": Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    "parameter_server": Distribution("parameter_server", num_workers=2, accelerator_type="cpu"),
    "central_storage": Distribution("central_storage", accelerator_type="cpu", accelerator_count=2),
    "model_parallel": Distribution("model_parallel", accelerator_type="cpu", mesh="2x1"),
}


@pytest.fixture
def faulty(cluster, tmp_path):
    """A cluster whose processes can be struck; it saves every ten training steps."""
    outputs = replace(cluster.job.outputs, checkpoint_dir=str(tmp_path / "checkpoints"))
    cluster.job = replace(
        cluster.job,
        module=MODULE,
        schedule=SCHEDULE,
        outputs=outputs,
        recovery=Recovery(save_checkpoints_steps=EVERY, heartbeat_timeout_secs=3),
    )
    return cluster


def fault(cluster, kind, task="chief-0", **more):
    return {**cluster.job.hparams, "fault": kind, "fault_task": task, "fault_file": str(cluster.folder / "struck"), **more}


def weights(cluster):
    return [variable.numpy() for variable in tf.saved_model.load(str(cluster.model)).variables]


def messages(cluster):
    return [progress.message for task, progress in cluster.reports if progress.message and task.role == "chief"]


def continued(cluster):
    """After which step the last try went on."""
    return max(int(message.rpartition(" ")[2]) for message in messages(cluster) if "continues after" in message)


def struck_at(cluster):
    return json.loads((cluster.folder / "struck").read_text())["step"]


@pytest.fixture
def nothing_is_left(faulty):
    """To be asked at the end: of processes, states and temporary folders."""
    before = set(Path("/tmp").glob("tfx-distribute-checkpoint-*"))

    def check():
        from tests_support import children

        assert children(faulty.server.pid) == []
        assert {path.name for path in Path(faulty.model).parent.iterdir()} & {"model.partial"} == set()
        assert set(Path("/tmp").glob("tfx-distribute-checkpoint-*")) == before

    return check


@pytest.mark.parametrize("task", ["chief-0", "worker-0"])
@pytest.mark.parametrize("strategy", ["default", "mirrored", "multi_worker_mirrored", "central_storage", "model_parallel"])
def test_killed_process_costs_no_more_than_an_interval(faulty, strategy, task):
    """And what comes of it is what would have come of it anyway, to the last bit."""
    if task == "worker-0" and strategy != "multi_worker_mirrored":
        pytest.skip("one process")
    distribution = STRATEGIES[strategy]
    undisturbed = faulty.train(distribution)
    expected = weights(faulty)
    shutil.rmtree(faulty.job.outputs.checkpoint_dir)
    result = faulty.train(distribution, hparams=fault(faulty, "kill", task, fault_step=37))
    assert result.train_steps == undisturbed.train_steps
    assert continued(faulty) == 30
    for own, other in zip(weights(faulty), expected, strict=True):
        np.testing.assert_array_equal(own, other)
    assert result.metrics == undisturbed.metrics
