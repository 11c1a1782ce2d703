"""Tests which model is found as the latest blessed one."""

import ipaddress
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import certificates
import pytest
from cryptography import x509
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

from tfx_distribute.components.container import kubeflow_services, latest_artifact
from tfx_distribute.components.container.names import BLESSING
from tfx_distribute.components.launchers import retry
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def service():
    with MetadataService() as running:
        yield running


def find(address, pipeline, root, launcher=(), type_name=BLESSING):
    artifacts = kubeflow_services.list_artifacts(address, PIPELINE, pipeline, launcher)
    return latest_artifact.select_latest(artifacts.get(type_name, ()), root, type_name)


def bless(service, pipeline, model, blessed, at):
    artifact = pb.Artifact(uri=f"{model}-blessing", create_time_since_epoch=at)
    artifact.custom_properties["blessed"].double_value = blessed  # as KFP stores numbers
    artifact.custom_properties["current_model"].string_value = model
    contexts = [service.context(PIPELINE, pipeline), service.context(RUN, f"run-{model}")]
    service.record("tfx.ModelBlessing", artifact, contexts)


def test_the_latest_blessed_model_of_the_pipeline(service):
    assert find(service.address, "digits", "s3://b") is None, "nothing has run yet"
    service.record("tfx.Model", pb.Artifact(uri="s3://b/model"), [service.context(PIPELINE, "digits")])
    assert find(service.address, "digits", "s3://b") is None, "nothing was blessed yet"
    bless(service, "digits", "s3://b/1", 1.0, 100)
    bless(service, "digits", "s3://b/2", 1.0, 300)
    bless(service, "digits", "s3://b/3", 0.0, 400)
    bless(service, "taxi", "s3://b/4", 1.0, 500)
    assert find(service.address, "digits", "s3://b") == "s3://b/2"
    assert find(service.address, "taxi", "s3://b/") == "s3://b/4"
    assert find(service.address, "taxi", "s3://ours") is None, "another team's pipeline has the same name"


def test_the_latest_artifact_of_another_type(service):
    contexts = [service.context(PIPELINE, "digits")]
    for at, uri in ((100, "s3://b/1"), (300, "s3://b/2"), (400, "s3://other/3")):
        service.record("tfx.ExampleAnomalies", pb.Artifact(uri=uri, create_time_since_epoch=at), contexts)
    found = find(service.address, "digits", "s3://b", type_name="tfx.ExampleAnomalies")
    assert found == "s3://b/2"
    assert find(service.address, "digits", "s3://b", type_name="tfx.Schema") is None


def test_the_store_may_answer_with_more_than_four_mebibytes(service):
    contexts = [service.context(PIPELINE, "large")]
    for number in range(50):
        artifact = pb.Artifact(uri=f"s3://b/metrics/{number}")
        artifact.custom_properties["confusionMatrix"].string_value = "x" * 100_000
        service.record("system.ClassificationMetrics", artifact, contexts)
    bless(service, "large", "s3://b/1", 1.0, 100)
    assert find(service.address, "large", "s3://b") == "s3://b/1"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_store_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(kubeflow_services, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(kubeflow_services, "RETRY_SECONDS", 1.0)
    port = free_port()
    with pytest.raises(ConfigurationError, match=rf"metadata_service: .* at 127.0.0.1:{port}"):
        find(f"127.0.0.1:{port}", "digits", "s3://b")


@pytest.mark.parametrize("flag", ["--metadata_tls_enabled", "--metadata_tls_enabled=true"])
def test_a_store_behind_tls(flag, tmp_path, monkeypatch):
    """Kubeflow's launcher knows the authority that its certificate is of."""
    monkeypatch.setattr(kubeflow_services, "TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr(kubeflow_services, "RETRY_SECONDS", 1.0)
    authority = certificates.write(tmp_path / "ca.pem", "cluster", x509.BasicConstraints(ca=True, path_length=None))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = certificates.write(tmp_path / "server.pem", "metadata-grpc-service", names, authority)
    launcher = ["/kfp-launcher/launch", flag, "--ca_cert_path", str(authority.file)]
    with MetadataService(certificate=certificate.file) as service:
        bless(service, "digits", "s3://b/1", 1.0, 100)
        assert find(service.address, "digits", "s3://b", launcher) == "s3://b/1"
        with pytest.raises(ConfigurationError, match=r"behind TLS, by a name that is in its certificate$"):
            find(service.address, "digits", "s3://b")


def test_the_command_of_the_launcher_is_that_of_the_parent():
    step = f"from {kubeflow_services.__name__} import launcher_command; print(launcher_command()[2:])"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {step!r}], check=True)"
    arguments = ["--metadata_tls_enabled", "--ca_cert_path", "/ca.pem", "--", "python", "--other"]
    done = subprocess.run(
        [sys.executable, "-c", launcher, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == f"{[launcher, *arguments[:3]]}\n"


def test_a_store_that_starts_again(monkeypatch):
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.2)
    port = free_port()
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(find, f"127.0.0.1:{port}", "digits", "s3://b")
        time.sleep(1)
        assert not answer.done()
        with MetadataService(port) as service:
            bless(service, "digits", "s3://b/1", 1.0, 100)
            assert answer.result(timeout=60) in (None, "s3://b/1"), "it may ask before the model is blessed"
            assert find(service.address, "digits", "s3://b") == "s3://b/1"
