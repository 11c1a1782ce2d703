import math
import os
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.reporting import metrics_server
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


def parse(text):
    """Returns the value of each sample by name and labels, read as Prometheus does."""
    return {
        (sample.name.removeprefix("tfx_distribute_training_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def serve():
    """Returns a function that serves the reports of a chief."""
    reporter = Reporter(os.devnull)
    servers = []

    def serve(*address):
        servers.append(metrics_server.serve(reporter, CHIEF_TASK, *address))
        values = {"loss": math.inf, 'a "b"\\': 0.5}
        for spent in (1.0, 1.5):
            progress = Progress("train", 30, 440, 64.5, metrics=values, learning_rate=0.01, seconds={"input": spent})
            reporter.report(progress)
        reporter.report(Progress("done", 440, 440))
        return servers[0].server_address[:2]

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_prometheus_reads_it_on_loopback(serve):
    address, port = serve(0)
    assert address == "127.0.0.1"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        samples = parse(response.read().decode())
    assert samples["step", "chief-0"] == 440
    assert samples["examples_per_second", "chief-0"] == 64.5, "the last report has none"
    assert samples["learning_rate", "chief-0"] == 0.01
    assert samples["time_seconds_total", "chief-0", "input"] == 1.5
    assert samples["metric", "chief-0", "loss"] == math.inf
    assert samples["metric", 'a "b"\\', "chief-0"] == 0.5
    assert ("epoch", "chief-0") not in samples
    with pytest.raises(ConfigurationError, match=rf"^metrics_port: 127.0.0.1:{port} cannot be listened on \(Address al"):
        serve(port)


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_it_is_served_on_every_address(serve, monkeypatch, has_ipv6):
    """A pod has addresses of IPv4, of IPv6 or of both."""
    if not has_ipv6:
        monkeypatch.setattr(metrics_server.socket, "has_dualstack_ipv6", lambda: False)
    elif not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    _, port = serve(0, metrics_server.EVERY_ADDRESS)
    for address in ("127.0.0.1", "::1")[: 1 + has_ipv6]:
        with socket.create_connection((address, port), timeout=10) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert connection.recv(15) == b"HTTP/1.0 200 OK"
