"""Tests how certificates of API servers are judged, against a real TLS server."""

import datetime
import http.server
import ipaddress
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes import client

from tfx_distribute.components.launchers.kubernetes import client as job_client
from tfx_distribute.components.launchers.kubernetes import connection, job_kinds
from tfx_distribute.trainer_module.errors import ConfigurationError

NOW = datetime.datetime(2026, 1, 1)


class Authority:
    """A CA whose certificates have no more than those of old clusters: no keyUsage."""

    def __init__(self, folder: Path, name: str):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.crt"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.file.write_bytes(self._sign(self._name, self._key.public_key(), constraints))

    def write_server(self, file: Path) -> Path:
        """Writes the key and certificate of a server at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(text + self._sign(name, key.public_key(), addresses))
        return file

    def _sign(self, name: x509.Name, public_key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(self._name, name, public_key, x509.random_serial_number(), NOW)
        builder = builder.not_valid_after(NOW + datetime.timedelta(days=36500)).add_extension(extension, critical=True)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Answers that there are no kinds of jobs."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"groupVersion": "kubeflow.org/v1", "resources": []}')

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """Returns the CA of an API server that clients use."""
    made = Authority(tmp_path, "cluster")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.write_server(tmp_path / "server.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    configuration = client.Configuration()
    configuration.host = f"https://127.0.0.1:{server.server_port}"
    configuration.ssl_ca_cert = str(made.file)
    monkeypatch.setattr(client.Configuration, "_default", configuration)
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_cluster_with_an_old_certificate_is_trusted(authority):
    """Python 3.13 alone refuses it."""
    assert client.CustomObjectsApi(connection.api_client()).get_api_resources("kubeflow.org", "v1").resources == []


def test_another_certificate_is_named_at_once(authority, tmp_path):
    client.Configuration._default.ssl_ca_cert = str(Authority(tmp_path, "other").file)
    with pytest.raises(ConfigurationError, match="^this step does not trust the certificate of the Kubernetes API server"):
        job_client.has_kind(job_kinds.JOB_KINDS["tfjob"])


def test_a_name_that_is_not_the_servers_is_refused(authority):
    client.Configuration._default.host = client.Configuration._default.host.replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigurationError, match=r"Hostname mismatch|doesn't match"):
        job_client.has_kind(job_kinds.JOB_KINDS["tfjob"])
