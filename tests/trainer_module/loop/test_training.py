"""Trains modules on real clusters of processes on loopback."""

import json

import pytest
from training import EXAMPLES

from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e


def test_learning_rate_of_many_replicas(cluster):
    """Scaling by two is the same as doubling the learning rate in the module."""
    distribution = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2)
    scaled = cluster.train(distribution, TrainingOptions(32, train_steps=30, learning_rate_scaling="linear"))
    by_hand = cluster.train(
        distribution, TrainingOptions(32, train_steps=30), hparams={"hidden_units": 64, "learning_rate": 0.004}
    )
    assert scaled.metrics["loss"] == pytest.approx(by_hand.metrics["loss"], rel=1e-4)


CALLBACKS = """
import sys, tensorflow as tf
sys.path.append(%r)
from model import build_model

class Count(tf.keras.callbacks.Callback):
    losses = []
    def on_train_batch_end(self, batch, logs=None):
        assert logs["loss"] > 0
        self.losses.append(logs["loss"])
    def on_train_end(self, logs=None):
        with open("%s/" + str(self.chief), "w") as file:
            file.write(str(self.losses))

def callbacks(context):
    count = Count()
    count.chief = context.is_chief
    return [count, tf.keras.callbacks.EarlyStopping("accuracy", min_delta=1.0, patience=1)]
"""


def test_callbacks_of_the_module(cluster, tmp_path):
    """Hooks are called for each batch; a callback can stop training everywhere."""
    (tmp_path / "own_callbacks.py").write_text(CALLBACKS % (str(EXAMPLES / "digits"), tmp_path))
    result = cluster.train(
        Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
        TrainingOptions(32, epochs=9),
        module=UserModule("own_callbacks.build_model", (str(tmp_path),)),
    )
    assert result.train_steps == 44, "no accuracy rises by 1 from the first epoch to the second"
    assert cluster.messages() == ["a callback has ended the training after step 44 of 198"]
    chief, worker = (json.loads((tmp_path / name).read_text()) for name in ("True", "False"))
    assert len(chief) == 44
    assert chief == worker, "or a callback that sets the learning rate would set another one in each process"


def test_tf_config_of_the_launchers_environment_is_ignored(cluster, request, monkeypatch):
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    cluster.server = request.getfixturevalue("own_fork_server")
    assert cluster.train(training_options=TrainingOptions(64, train_steps=2)).train_steps == 2


@pytest.mark.parametrize(
    ("distribution", "keras_version"),
    [
        (Distribution("one_device", accelerator_type="cpu"), 3),
        (Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"), 2),
    ],
    ids=lambda value: getattr(value, "strategy", value),
)
def test_training_continues_from_the_end_of_a_shorter_one(cluster, request, tmp_path, distribution, keras_version):
    """As trials of a search do, which export no model."""
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")

    def train(epochs: int, state: str):
        outputs = Outputs("", str(tmp_path / "run"), str(tmp_path / "result.json"), str(tmp_path / state), saves_end=True)
        options = TrainingOptions(64, epochs=epochs, keras_version=keras_version)
        return cluster.train(distribution, options, outputs=outputs)

    whole = train(3, "whole")
    train(1, "parts")
    assert cluster.messages() == []
    continued = train(3, "parts")
    roles = ("chief", "worker")[: distribution.num_workers]
    for role in roles:
        assert cluster.messages(role) == [f"continues after training step {whole.train_steps // 3}"]
    assert continued.train_steps == whole.train_steps
    assert continued.metrics == pytest.approx(whole.metrics, abs=1e-6)
    # One that was killed after its last save still has its metrics.
    again = train(3, "parts")
    assert again.metrics == pytest.approx(whole.metrics, abs=1e-6)
    assert not cluster.model.exists()


UNEVEN = """
import json, os, sys
sys.path.append(%r)
from model import build_model as digits_model
from tfx_distribute.trainer_module.loop.step_runner import StepRunner

def build_model(context):
    # Without agreement, the two processes would divide the same steps into calls of very
    # different length.
    assert hasattr(StepRunner, "call_seconds")
    StepRunner.call_seconds = {"chief": 0.01, "worker": 5.0}[json.loads(os.environ["TF_CONFIG"])["task"]["type"]]
    return digits_model(context)
"""


def test_processes_agree_on_the_length_of_calls(cluster, tmp_path):
    (tmp_path / "own_uneven.py").write_text(UNEVEN % str(EXAMPLES / "digits"))
    result = cluster.train(
        Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
        TrainingOptions(32, train_steps=400),
        module=UserModule("own_uneven.build_model", (str(tmp_path),)),
    )
    assert result.train_steps == 400
