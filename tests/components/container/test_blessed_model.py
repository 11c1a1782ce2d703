"""Tests which model is found as the latest blessed one."""

import socket

import pytest
from metadata_service import PIPELINE, RUN, MetadataService
from ml_metadata.proto import metadata_store_pb2 as pb

from tfx_distribute.components.container import blessed_model
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def service():
    with MetadataService() as running:
        yield running


def bless(service, pipeline, model, blessed, at):
    artifact = pb.Artifact(uri=f"{model}-blessing", create_time_since_epoch=at)
    artifact.custom_properties["blessed"].double_value = blessed  # as KFP stores numbers
    artifact.custom_properties["current_model"].string_value = model
    contexts = [service.context(PIPELINE, pipeline), service.context(RUN, f"run-{model}")]
    service.record("tfx.ModelBlessing", artifact, contexts)


def test_the_latest_blessed_model_of_the_pipeline(service):
    assert blessed_model.find(service.address, "digits", "s3://b") is None, "nothing has run yet"
    service.record("tfx.Model", pb.Artifact(uri="s3://b/model"), [service.context(PIPELINE, "digits")])
    assert blessed_model.find(service.address, "digits", "s3://b") is None, "nothing was blessed yet"
    bless(service, "digits", "s3://b/1", 1.0, 100)
    bless(service, "digits", "s3://b/2", 1.0, 300)
    bless(service, "digits", "s3://b/3", 0.0, 400)
    bless(service, "taxi", "s3://b/4", 1.0, 500)
    assert blessed_model.find(service.address, "digits", "s3://b") == "s3://b/2"
    assert blessed_model.find(service.address, "taxi", "s3://b/") == "s3://b/4"
    assert blessed_model.find(service.address, "taxi", "s3://ours") is None, "another team's pipeline has the same name"


def test_a_store_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(blessed_model, "TIMEOUT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(ConfigurationError, match=rf"metadata_service: .* at 127.0.0.1:{port}"):
        blessed_model.find(f"127.0.0.1:{port}", "digits", "s3://b")
