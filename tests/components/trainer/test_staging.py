"""Tests that local artifacts are copied to shared storage and back."""

import os
import tempfile
from pathlib import Path

import pytest
from tfx.types import standard_artifacts

from tfx_distribute.components.trainer.staging import stage
from tfx_distribute.trainer_module.errors import ConfigurationError


def model(uri):
    artifact = standard_artifacts.Model()
    artifact.uri = str(uri)
    return artifact


@pytest.fixture
def shared():
    """A folder in another file system, as a volume is for a step."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_local_artifacts_are_copied_to_shared_storage_and_back(tmp_path, shared):
    assert os.stat(shared).st_dev != os.stat(tmp_path).st_dev
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("read")
    inputs = {"base_model": [model(tmp_path / "in"), model("gs://b/elsewhere")]}
    outputs = {"model": [model(tmp_path / "out")]}
    artifacts = stage(inputs, outputs, str(shared), is_shared=True)
    near, far = artifacts.inputs["base_model"]
    assert (near.uri, far.uri) == (str(shared / "inputs/base_model-0"), "gs://b/elsewhere")
    assert (shared / "inputs/base_model-0/file").read_text() == "read"
    assert artifacts.addresses[near.uri] == str(tmp_path / "in")
    (shared / "outputs/model-0/file").write_text("written")
    assert artifacts.outputs["model"][0].uri == str(shared / "outputs/model-0")
    artifacts.copy_back()
    assert inputs["base_model"][0].uri == str(tmp_path / "in"), "the original is unchanged"
    assert (tmp_path / "out" / "file").read_text() == "written"


def test_file_of_a_base_model_is_copied(tmp_path, shared):
    (tmp_path / "model.keras").write_text("weights")
    artifacts = stage({"base_model": [model(tmp_path / "model.keras")]}, {}, str(shared), is_shared=True)
    (copy,) = artifacts.inputs["base_model"]
    assert copy.uri.startswith(str(shared))
    assert Path(copy.uri).read_text() == "weights"


def test_a_copy_counts_once_it_is_complete(tmp_path, shared):
    """That of an attempt that was killed is made again; a training may read others."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("whole")
    copied = shared / "inputs" / "base_model-0" / "file"
    copied.parent.mkdir(parents=True)
    copied.write_text("who")
    for text, expected in (("whole", "whole"), ("later", "whole")):
        (tmp_path / "in" / "file").write_text(text)
        stage({"base_model": [model(tmp_path / "in")]}, {}, str(shared), is_shared=True)
        assert copied.read_text() == expected


def test_missing_shared_folder_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="training_dir: is missing; the processes of the training cannot"):
        stage({"examples": [model(tmp_path)]}, {}, str(tmp_path), is_shared=False)
