"""Tests which artifact is found as the latest one."""

from ml_metadata.proto import metadata_store_pb2 as pb

from tfx_distribute.components.container.latest_artifact import select_latest


def blessing(model, blessed, at):
    artifact = pb.Artifact(uri=f"{model}-blessing", create_time_since_epoch=at)
    artifact.custom_properties["blessed"].double_value = blessed  # as KFP stores numbers
    artifact.custom_properties["current_model"].string_value = model
    return artifact


def test_the_latest_blessed_model():
    blessings = [blessing("s3://b/1", 1.0, 100), blessing("s3://b/2", 1.0, 300), blessing("s3://b/3", 0.0, 400)]
    assert select_latest(blessings, "s3://b") == select_latest(blessings, "s3://b/") == "s3://b/2"
    assert select_latest(blessings, "s3://ours") is None, "another team's pipeline has the same name"
    assert select_latest(blessings[2:], "s3://b") is None, "nothing was blessed yet"
    assert select_latest([], "s3://b") is None


def test_the_latest_artifact_of_another_type():
    places = ((100, "s3://b/1"), (300, "s3://b/2"), (400, "s3://other/3"))
    artifacts = [pb.Artifact(uri=uri, create_time_since_epoch=at) for at, uri in places]
    assert select_latest(artifacts, "s3://b", "tfx.ExampleAnomalies") == "s3://b/2"
