"""Tests which certificates of API servers are trusted, against a real TLS server."""

import ssl
import threading

import certificates
import pytest
from http_api import Server
from kubernetes import client

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.errors import NoAnswerError
from tfx_distribute.components.launchers.kubernetes import client as job_client
from tfx_distribute.components.launchers.kubernetes.job_kinds import JOB_KINDS


class ApiServer:
    """Answers that there are no kinds of jobs."""

    reachable_at = 0.0

    def respond(self, request):
        return 200, {"groupVersion": "kubeflow.org/v1", "resources": []}


@pytest.fixture
def configuration(tmp_path, monkeypatch):
    """Returns the clients' configuration for an API server whose CA has no keyUsage."""
    authority = certificates.write(tmp_path / "ca.pem", "cluster")
    server = Server(ApiServer())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.write(tmp_path / "server.pem", "kube-apiserver", authority).file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    configuration = client.Configuration()
    configuration.host = f"https://127.0.0.1:{server.server_port}"
    configuration.ssl_ca_cert = str(authority.file)
    monkeypatch.setattr(client.Configuration, "_default", configuration)
    yield configuration
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("configuration")
def test_a_cluster_with_an_old_certificate_is_trusted():
    """Python 3.13 refuses it by default."""
    assert not job_client.has_kind(JOB_KINDS["tfjob"])


@pytest.mark.parametrize("wrong", ["certificate", "name"])
def test_another_server_is_refused(configuration, tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(timeouts, "ANSWER_SECONDS", 0.0)
    if wrong == "name":
        configuration.host = configuration.host.replace("127.0.0.1", "localhost")
    else:
        configuration.ssl_ca_cert = str(certificates.write(tmp_path / "other.pem", "another").file)
    with pytest.raises(NoAnswerError, match=r"Hostname mismatch|doesn't match|CERTIFICATE_VERIFY_FAILED"):
        job_client.has_kind(JOB_KINDS["tfjob"])
