"""Tests which errors are put down to the loss of another process."""

import json
import socket
import sys
from functools import partial

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import DataError, PeerLostError, TrainingError
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.liveness import lease, peer_loss
from tfx_distribute.trainer_module.user_code import module_loader

MODULE = """
import tensorflow as tf

def raises(error):
    raise error

def reads(error):
    tf.io.gfile.GFile("/nowhere", "r").read()
"""
LOST = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Socket closed")
EAGER = tf.errors.AbortedError(None, None, "from /job:worker/replica:0/task:1: gone [Op:CollectiveReduceV2]")
OTHER = tf.errors.UnavailableError(None, None, "gs://bucket: 503")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The user's module, whose functions raise errors."""
    addresses = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": addresses, "task": {"type": "worker", "index": 0}}))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "raising_module.py").write_text(MODULE)
    yield UserModule("raising_module.raises", (str(tmp_path),))
    sys.modules.pop("raising_module", None)


def conclude(function, module, error):
    """Returns what is concluded from an error that a function raises."""
    try:
        function(error.with_traceback(None))  # another test may have raised it, too
    except Exception as raised:
        return peer_loss.as_peer_lost_error(raised, partial(module_loader.contains, module))
    raise AssertionError("it raises nothing")


def test_errors_of_the_users_code_are_its_own(module):
    raises = module_loader.load(module)
    assert conclude(raises, module, OTHER) is None
    assert conclude(raises, module, KeyError("x")) is None
    with pytest.raises(tf.errors.NotFoundError) as missing:  # TensorFlow's own code is below the module's
        module_loader.load_optional(module, "reads")(None)
    assert peer_loss._is_of_user(missing.value, partial(module_loader.contains, module))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (tf.errors.UnavailableError(None, None, "failed to connect to all addresses"), "failed to connect"),
        (LOST, "Collective ops is aborted"),
        (tf.errors.AbortedError(None, None, "All 10 retry attempts failed. The last failure: HTTP 503"), None),
        (tf.errors.ResourceExhaustedError(None, None, "No space left on device"), None),
        (ValueError("the file is damaged"), None),
    ],
)
def test_what_could_not_be_saved_for_a_lost_process_is_its_loss(module, error, message):
    """And not that of the storage."""

    def save(kind, cause):
        try:
            raise cause
        except Exception as raised:
            raise kind("export_best: the best weights so far cannot be saved") from raised

    lost = conclude(partial(save, TrainingError), module, error)
    assert lost is None if message is None else message in str(lost)
    assert conclude(partial(save, DataError), module, error) is None


def test_wait_for_a_chief_that_never_starts(module, monkeypatch):
    """One with a lease waits on; one without ends, and is worth another try."""
    monkeypatch.setattr(timeouts, "CHIEF_COMES_SECONDS", -1.0)
    monitor = peer_loss.ChiefMonitor(ClusterTask("worker", 0))
    monkeypatch.setenv(lease.LEASE_VARIABLE, "followed.json")
    assert not monitor.has_gone()
    monkeypatch.delenv(lease.LEASE_VARIABLE)
    with pytest.raises(PeerLostError, match="for the chief at localhost:1, which did not start"):
        monitor.has_gone()


def test_packages_below_the_users_folder_are_not_its_code(module, tmp_path):
    packages = tmp_path / ".venv" / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_module.py").write_text(MODULE)
    module_loader.load(module)
    sys.path.append(str(packages))
    installed = __import__("installed_module")
    assert "another process" in str(conclude(installed.raises, module, OTHER))


def test_the_loss_of_another_process_is_that_wherever_it_is_seen(module):
    raises = module_loader.load(module)
    assert str(conclude(raises, module, LOST)).startswith("worker 0 has lost another process of the cluster: Collective")
    assert str(conclude(raises, module, EAGER)).startswith("worker 0 has lost worker 1: from /job:worker")

    def elsewhere(error):
        raise error

    assert "another process" in str(conclude(elsewhere, module, OTHER))


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_outage_of_object_storage_is_no_lost_process(module, wrapped):
    def read(error):
        if wrapped:
            raise TrainingError("the state cannot be saved") from error
        raise error

    error = tf.errors.AbortedError(None, None, "All 10 retry attempts failed. The last failure: HTTP 503")
    assert conclude(read, module, error) is None


SILENT, UNKNOWN = socket.gaierror(socket.EAI_AGAIN, "again"), socket.gaierror(socket.EAI_NONAME, "unknown")


@pytest.mark.parametrize(
    "seen",
    [
        # It counts from the first look that misses the chief.
        [(1.0, None, False), (600.0, UNKNOWN, False), (629.0, UNKNOWN, False), (631.0, UNKNOWN, True)],
        [(1.0, None, False), (2.0, UNKNOWN, False), (30.0, None, False), (40.0, UNKNOWN, False), (69.0, UNKNOWN, False)],
        # A name service that does not answer says nothing about the chief, for a while.
        [(1.0, None, False), (2.0, SILENT, False), (500.0, SILENT, False), (520.0, UNKNOWN, False), (551.0, UNKNOWN, True)],
        [(1.0, None, False), (2.0, SILENT, False), (603.0, SILENT, True)],
        # Also if some of its servers answer.
        [(1.0, None, False), *((20.0 * n, (SILENT, UNKNOWN)[n % 2], False) for n in range(1, 31)), (621.0, SILENT, True)],
        [(1.0, UNKNOWN, False), (500.0, UNKNOWN, False)],
    ],
)
def test_when_a_chief_is_gone(module, monkeypatch, seen):
    monkeypatch.setattr(peer_loss.time, "monotonic", iter([0.0, *(now for now, _, _ in seen)]).__next__)
    monitor = peer_loss.ChiefMonitor(ClusterTask("worker", 0))
    for _, obstacle, has_gone in seen:
        monkeypatch.setattr(peer_loss.listening, "find_obstacle", lambda address, error=obstacle: error)
        assert monitor.has_gone() == has_gone
