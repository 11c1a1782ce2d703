"""Tests that processes wait for each other, and which errors are put down to a loss."""

import contextlib
import json
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import tensorflow as tf
from running import free_port, wait_until
from single_processes import SingleProcesses

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import DataError, TrainingError
from tfx_distribute.trainer_module.job.cluster import ClusterTask, replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingResult
from tfx_distribute.trainer_module.liveness import cluster_peers, lease
from tfx_distribute.trainer_module.reporting.progress import Progress


@pytest.fixture
def meet(monkeypatch):
    """Starts a process's wait in a thread; returns the thread and its reports."""
    monkeypatch.setattr(timeouts, "RENDEZVOUS_POLL_SECONDS", 0.05)
    monkeypatch.setattr(timeouts, "RENDEZVOUS_REPORT_SECONDS", 0.2)

    def start(cluster, role, index, task):
        addresses = {name: [f"localhost:{port}" for port in ports] for name, ports in cluster.items()}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": addresses, "task": {"type": role, "index": index}}))
        reports = []
        thread = threading.Thread(target=cluster_peers.meet, args=(task, reports.append), daemon=True)
        thread.start()
        return thread, reports

    return start


@pytest.mark.parametrize("chief", ["chief", "worker"], ids=["chief", "worker 0 is the chief"])
def test_worker_listens_until_the_chief_does(meet, chief):
    ports = [free_port(), free_port()]
    cluster = {"chief": ports[:1], "worker": ports[1:]} if chief == "chief" else {"worker": ports}
    index = 0 if chief == "chief" else 1
    thread, reports = meet(cluster, "worker", index, ClusterTask("worker", index))
    wait_until(lambda: cluster_peers.listens(f"localhost:{ports[1]}"))
    wait_until(lambda: reports)
    assert reports[0].startswith(f"waiting for {ClusterTask(chief, 0)} to listen at localhost:{ports[0]}: ")
    with socket.create_server(("localhost", ports[0])):
        thread.join(20)
    assert not thread.is_alive()
    assert not cluster_peers.listens(f"localhost:{ports[1]}"), "TensorFlow is to listen there"


@pytest.mark.parametrize("chief", ["chief", "worker"], ids=["chief", "worker 0 is the chief"])
def test_chief_waits_for_all_others(meet, chief):
    ports = [free_port() for _ in range(3)]
    cluster = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]} if chief == "chief" else {"worker": ports}
    thread, _ = meet(cluster, chief, 0, ClusterTask("chief", 0))
    with socket.create_server(("localhost", ports[1])):
        thread.join(1)
        assert thread.is_alive(), "the third is missing"
        with socket.create_server(("localhost", ports[2])):
            thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("cluster", [{}, {"chief": [1]}], ids=["no cluster", "a cluster of one"])
def test_process_that_trains_alone_waits_for_nobody(meet, cluster):
    thread, _ = meet(cluster, "chief", 0, ClusterTask("chief", 0))
    thread.join(20)
    assert not thread.is_alive()


def test_waits_for_one_that_comes_later():
    with socket.create_server(("127.0.0.1", 0)) as first, socket.socket() as second:
        second.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (first, second)]
        assert [cluster_peers.listens(address) for address in addresses] == [True, False]
        timer = threading.Timer(0.3, second.listen)
        started = time.monotonic()
        timer.start()
        assert cluster_peers.wait_for(addresses, seconds=60)
        assert time.monotonic() - started >= 0.2
        timer.join()


def test_does_not_wait_for_ever():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert not cluster_peers.wait_for([f"127.0.0.1:{silent.getsockname()[1]}"], seconds=0.1)


def test_a_name_that_is_not_known_yet():
    assert not cluster_peers.listens("worker-0.invalid:2222")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("distribution", "late"),
    [
        (Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"), "chief"),
        (Distribution("parameter_server", num_workers=1, accelerator_type="cpu"), "worker"),
    ],
    ids=["chief", "worker of parameter servers"],
)
def test_training_begins_when_the_last_process_has_a_machine(cluster, forked_trainings, tmp_path, distribution, late):
    """Without a launcher of ours to read them, reports are lines of the log."""
    lease.Lease(str(tmp_path / "followed.json")).take()
    roles = replicas_of_roles(distribution)
    with SingleProcesses(
        forked_trainings, replace(cluster.job, distribution=distribution), tmp_path, has_lease=True
    ) as processes:
        early = [role for role in roles if role != late]
        for role in early:
            processes.start(role)
        for role in early:
            if role != "chief":  # which listens only once it trains
                processes.wait_until_listening(role)
        processes.start(late)
        assert processes.wait() == dict.fromkeys(roles, 0)
        lines = processes.output("chief").splitlines()
    reports = [Progress.from_json(line) for line in lines if line.startswith('{"phase"')]
    assert [reports[0].phase, reports[-1].phase] == ["start", "done"]
    result = TrainingResult.from_json((tmp_path / "result.json").read_text())
    assert (result.num_replicas, result.train_steps) == (distribution.num_workers, reports[-1].step)


LOST = tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Socket closed")
EAGER = tf.errors.AbortedError(None, None, "from /job:worker/replica:0/task:1: gone [Op:CollectiveReduceV2]")
OTHER = tf.errors.UnavailableError(None, None, "gs://bucket: 503")


@pytest.fixture
def worker(monkeypatch):
    """Makes this process a worker of a cluster."""
    addresses = {"chief": ["localhost:1"], "worker": ["localhost:2", "localhost:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": addresses, "task": {"type": "worker", "index": 0}}))


@pytest.mark.usefixtures("worker")
def test_errors_of_the_users_code_are_its_own():
    assert cluster_peers.as_peer_lost_error(KeyError("x")) is None


@pytest.mark.usefixtures("worker")
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
    lost = cluster_peers.as_peer_lost_error(saving)
    assert lost is None if message is None else message in str(lost)
    assert cluster_peers.as_peer_lost_error(reading) is None


@pytest.mark.usefixtures("worker")
def test_the_loss_of_another_process_is_that_wherever_it_is_seen():
    assert str(cluster_peers.as_peer_lost_error(LOST)).startswith("worker 0 has lost another process of the cluster: Coll")
    assert str(cluster_peers.as_peer_lost_error(EAGER)).startswith("worker 0 has lost worker 1: from /job:worker")
    assert "another process" in str(cluster_peers.as_peer_lost_error(OTHER))


@pytest.mark.usefixtures("worker")
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
    monkeypatch.setattr(cluster_peers, "time", SimpleNamespace(monotonic=times.__next__, sleep=lambda seconds: None))
    monkeypatch.setattr(cluster_peers, "listens", lambda address: next(answers))
    with pytest.raises(StopIteration) if num_looks is None else contextlib.nullcontext():
        cluster_peers.wait_until_chief_is_gone()
    assert len(looks) - len([*answers]) == (num_looks or len(looks))
