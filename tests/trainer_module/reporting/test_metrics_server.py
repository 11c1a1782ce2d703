import math
import socket
import urllib.request

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, ClusterTask
from tfx_distribute.trainer_module.reporting import metrics_server
from tfx_distribute.trainer_module.reporting.progress import Progress


def parse(text):
    """Returns the value of each sample by name and labels, read as Prometheus does."""
    return {
        (sample.name.removeprefix("tfx_distribute_training_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def metrics():
    metrics = metrics_server.Metrics()
    progress = Progress(
        "train",
        30,
        440,
        64.5,
        metrics={"loss": math.inf, 'a "b"\\': 0.5},
        epoch=2,
        learning_rate=0.01,
        seconds={"input": 1.5},
    )
    metrics.add(CHIEF_TASK, progress)
    metrics.add(CHIEF_TASK, Progress("done", 440, 440))
    metrics.add(ClusterTask("worker", 1), Progress("start"))
    return metrics


def test_prometheus_reads_the_text(metrics):
    samples = parse(generate_latest(metrics).decode())
    assert samples["step", "chief-0"] == 440
    assert samples["examples_per_second", "chief-0"] == 64.5, "the last report has none"
    assert samples["learning_rate", "chief-0"] == 0.01
    assert samples["time_seconds_total", "chief-0", "input"] == 1.5
    assert samples["metric", "chief-0", "loss"] == math.inf
    assert samples["metric", 'a "b"\\', "chief-0"] == 0.5
    assert samples["step", "worker-1"] == 0
    assert ("learning_rate", "worker-1") not in samples


def test_another_try_begins_without_the_numbers_of_the_last(metrics):
    metrics.add(CHIEF_TASK, Progress("start"))
    assert ("learning_rate", "chief-0") not in parse(generate_latest(metrics).decode())


def test_it_is_served_on_loopback(metrics):
    server = metrics_server.serve(metrics, 0)
    address, port = server.server_address[:2]
    try:
        assert address == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            assert parse(response.read().decode())["step", "chief-0"] == 440
        with pytest.raises(ConfigurationError, match=rf"^metrics_port: 127.0.0.1:{port} cannot be listened on \(Address al"):
            metrics_server.serve(metrics, port)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_it_is_served_on_every_address(metrics, monkeypatch, has_ipv6):
    """A pod has addresses of IPv4, of IPv6 or of both."""
    if not has_ipv6:
        monkeypatch.setattr(metrics_server.socket, "has_dualstack_ipv6", lambda: False)
    elif not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = metrics_server.serve(metrics, 0, metrics_server.EVERY_ADDRESS)
    try:
        for address in ("127.0.0.1", "::1")[: 1 + has_ipv6]:
            with socket.create_connection((address, server.server_address[1]), timeout=10) as connection:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                assert connection.recv(15) == b"HTTP/1.0 200 OK"
    finally:
        server.shutdown()
        server.server_close()
