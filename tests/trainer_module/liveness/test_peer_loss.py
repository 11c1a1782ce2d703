"""Tests which errors are put down to the loss of another process."""

import contextlib
import json
from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import DataError, TrainingError
from tfx_distribute.trainer_module.liveness import peer_loss

LOST = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Socket closed")
EAGER = tf.errors.AbortedError(None, None, "from /job:worker/replica:0/task:1: gone [Op:CollectiveReduceV2]")
OTHER = tf.errors.UnavailableError(None, None, "gs://bucket: 503")


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    """Makes this process a worker of a cluster."""
    addresses = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": addresses, "task": {"type": "worker", "index": 0}}))


def test_errors_of_the_users_code_are_its_own():
    assert peer_loss.as_peer_lost_error(KeyError("x")) is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (tf.errors.UnavailableError(None, None, "failed to connect to all addresses"), "failed to connect"),
        (LOST, "Collective ops is aborted"),
        (tf.errors.ResourceExhaustedError(None, None, "No space left on device"), None),
        (ValueError("the file is damaged"), None),
    ],
)
def test_what_could_not_be_saved_for_a_lost_process_is_its_loss(error, message):
    """And not that of the storage."""
    saving, reading = TrainingError("the best weights cannot be saved"), DataError("a record cannot be read")
    saving.__cause__ = reading.__cause__ = error
    lost = peer_loss.as_peer_lost_error(saving)
    assert lost is None if message is None else message in str(lost)
    assert peer_loss.as_peer_lost_error(reading) is None


def test_the_loss_of_another_process_is_that_wherever_it_is_seen():
    assert str(peer_loss.as_peer_lost_error(LOST)).startswith("worker 0 has lost another process of the cluster: Coll")
    assert str(peer_loss.as_peer_lost_error(EAGER)).startswith("worker 0 has lost worker 1: from /job:worker")
    assert "another process" in str(peer_loss.as_peer_lost_error(OTHER))


@pytest.mark.parametrize(
    ("looks", "num_looks"),
    [
        ([(1.0, True), (30.0, False), (32.0, False), (33.0, False)], 3),
        ([(1.0, True), (2.0, False), (30.0, True), (59.0, False)], None),
        ([(1.0, False), (500.0, False)], None),
    ],
)
def test_when_a_chief_is_gone(monkeypatch, looks, num_looks):
    """Each look has a time, and whether the chief listens then."""
    times, answers = iter([now for now, _ in looks]), iter([listens for _, listens in looks])
    monkeypatch.setattr(peer_loss, "time", SimpleNamespace(monotonic=times.__next__, sleep=lambda seconds: None))
    monkeypatch.setattr(peer_loss.rendezvous, "listens", lambda address: next(answers))
    with pytest.raises(StopIteration) if num_looks is None else contextlib.nullcontext():
        peer_loss.wait_until_chief_is_gone()
    assert len(looks) - len([*answers]) == (num_looks or len(looks))
