"""Tests how steps reach the services of Kubeflow Pipelines."""

import subprocess
import sys

import certificates
import pytest
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb
from running import free_port

from tfx_distribute.components import timeouts
from tfx_distribute.components.container import kubeflow_services
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def service():
    with MetadataService() as running:
        yield running


def record(service, model, pipeline="digits"):
    service.record(
        "tfx.Model", pb.Artifact(uri=model), [service.context(PIPELINE, pipeline), service.context(RUN, f"run-{model}")]
    )


def find(address, context_type=PIPELINE, context="digits"):
    found = kubeflow_services.list_artifacts(address, context_type, context)
    return [artifact.uri for artifact in found.get("tfx.Model", ())]


def test_the_artifacts_of_a_pipeline_and_of_a_run(service):
    assert find(service.address) == [], "nothing has run yet"
    record(service, "s3://b/1")
    record(service, "s3://b/2")
    record(service, "s3://b/3", "taxi")
    assert sorted(find(service.address)) == ["s3://b/1", "s3://b/2"]
    assert find(service.address, context_type=RUN, context="run-s3://b/2") == ["s3://b/2"]
    found = kubeflow_services.list_artifacts(service.address, PIPELINE, "taxi")
    assert list(found) == ["tfx.Model"]


def test_the_states_of_a_run(service):
    assert kubeflow_services.list_states(service.address, "mine") == {}
    contexts = [service.context(PIPELINE, "digits"), service.context(RUN, "mine")]
    for name, state in (("Trainer", "RUNNING"), ("Sharder", "CACHED"), ("Trainer", "COMPLETE"), ("Pusher", "FAILED")):
        service.record_step(name, state, contexts)
    service.record_step("Trainer", "FAILED", [contexts[0], service.context(RUN, "other")])
    states = {"Trainer": "COMPLETE", "Sharder": "CACHED", "Pusher": "FAILED"}
    assert kubeflow_services.list_states(service.address, "mine") == states


def test_the_store_may_answer_with_more_than_four_mebibytes(service):
    contexts = [service.context(PIPELINE, "digits")]
    for number in range(50):
        artifact = pb.Artifact(uri=f"s3://b/metrics/{number}")
        artifact.custom_properties["confusionMatrix"].string_value = "x" * 100_000
        service.record("system.ClassificationMetrics", artifact, contexts)
    record(service, "s3://b/1")
    assert find(service.address) == ["s3://b/1"]


def test_a_store_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(timeouts, "METADATA_SECONDS", 1.0)
    monkeypatch.setattr(timeouts, "METADATA_RETRY_SECONDS", 1.0)
    port = free_port()
    with pytest.raises(ConfigurationError, match=rf"metadata_service: .* at 127.0.0.1:{port}"):
        find(f"127.0.0.1:{port}")


@pytest.mark.parametrize("flag", ["--metadata_tls_enabled", "--metadata_tls_enabled=true"])
def test_a_store_behind_tls(flag, tmp_path, monkeypatch):
    """Kubeflow's launcher knows the authority that its certificate is of."""
    monkeypatch.setattr(timeouts, "METADATA_SECONDS", 5.0)
    monkeypatch.setattr(timeouts, "METADATA_RETRY_SECONDS", 1.0)
    authority = certificates.write(tmp_path / "ca.pem", "cluster")
    certificate = certificates.write(tmp_path / "server.pem", "metadata-grpc-service", authority)
    launcher = ["/kfp-launcher/launch", flag, "--ca_cert_path", str(authority.file)]
    with MetadataService(certificate=certificate.file) as service:
        record(service, "s3://b/1")
        with pytest.raises(ConfigurationError, match=r"behind TLS, by a name that is in its certificate$"):
            find(service.address)
        monkeypatch.setattr(kubeflow_services, "launcher_command", lambda: launcher)
        assert find(service.address) == ["s3://b/1"]


def test_the_command_of_the_launcher_is_that_of_the_parent():
    step = f"from {kubeflow_services.__name__} import launcher_command; print(launcher_command()[2:])"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {step!r}], check=True)"
    arguments = ["--metadata_tls_enabled", "--ca_cert_path", "/ca.pem", "--", "python", "--other"]
    done = subprocess.run(
        [sys.executable, "-c", launcher, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == f"{[launcher, *arguments[:3]]}\n"
