import pytest
from tfx.types import standard_artifacts

from tfx_distribute.components.trainer.staging import staged
from tfx_distribute.trainer_module.errors import ConfigurationError


def model(uri):
    artifact = standard_artifacts.Model()
    artifact.uri = str(uri)
    return artifact


def test_what_pods_cannot_reach_is_put_where_they_can_and_brought_back(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("read")
    inputs = {"base_model": [model(tmp_path / "in"), model("gs://b/elsewhere")]}
    outputs = {"model": [model(tmp_path / "out")]}
    with staged(inputs, outputs, str(tmp_path / "shared"), is_shared=True) as moved:
        near, far = moved.inputs["base_model"]
        assert (near.uri, far.uri) == (str(tmp_path / "shared/inputs/base_model-0"), "gs://b/elsewhere")
        assert (tmp_path / "shared/inputs/base_model-0/file").read_text() == "read"
        assert moved.addresses[near.uri] == str(tmp_path / "in")
        (tmp_path / "shared/outputs/model-0/file").write_text("written")
        assert moved.outputs["model"][0].uri == str(tmp_path / "shared/outputs/model-0")
    assert inputs["base_model"][0].uri == str(tmp_path / "in"), "what was given is as it was"
    assert (tmp_path / "out" / "file").read_text() == "written"


def test_nothing_shared_is_known(tmp_path):
    with (
        pytest.raises(ConfigurationError, match="training_dir: is missing; the pods of the training cannot reach"),
        staged({"examples": [model(tmp_path)]}, {}, str(tmp_path), is_shared=False),
    ):
        pass
