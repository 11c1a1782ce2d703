"""Tests the folders of a local run, and who may read them."""

import os
import stat
from dataclasses import replace
from datetime import datetime

import pytest

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.local.paths import RunPaths, run_paths
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def places(tmp_path):
    stamp = datetime(2026, 1, 2).strftime("%Y%m%d")
    return RunPaths(tmp_path / "runs" / "digits", tmp_path / "runs" / "digits" / "logs" / stamp, tmp_path / "serving")


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_holds_the_data_is_for_its_owner_whatever_the_umask(places):
    before = os.umask(0)
    try:
        places.create()
    finally:
        os.umask(before)
    assert (mode(places.artifacts), mode(places.logs), mode(places.metadata)) == (0o700, 0o700, 0o600)
    assert mode(places.root) == 0o777, "as the umask says: pushed models are in it, which others may read"
    assert not places.serving.exists(), "Pusher creates it, as the umask says"


def test_what_exists_keeps_its_mode_and_its_content(places):
    places.create()
    places.artifacts.chmod(0o750)
    places.metadata.chmod(0o640)
    places.metadata.write_text("metadata")
    places.create()
    assert (mode(places.artifacts), mode(places.metadata)) == (0o750, 0o640)
    assert places.metadata.read_text() == "metadata"


def test_artifacts_that_nothing_is_known_about(places):
    """Their numbers would be given again."""
    places.create()
    places.metadata.unlink()
    places.create()
    (places.artifacts / "Trainer" / "model" / "7").mkdir(parents=True)
    places.create()
    places.metadata.unlink()
    with pytest.raises(ConfigurationError, match=r"metadata\.sqlite, which says what they are, is gone; put it back"):
        places.create()
    assert not places.metadata.exists()


def test_names_that_would_be_patterns(project):
    with pytest.raises(ConfigurationError, match=r"a\*' has the character '\*', which TFX and Beam read as part of a"):
        run_paths(loader.load(project / "pipeline.yaml"), "a*")


def test_what_is_no_folder(places, tmp_path):
    (tmp_path / "serving").touch()
    with pytest.raises(
        ConfigurationError, match="serving: Not a directory; write another --root, or another push.directory"
    ):
        places.create()
    (tmp_path / "runs" / "other").touch()
    with pytest.raises(ConfigurationError, match="other: .*; write another --root"):
        replace(places, root=tmp_path / "runs" / "other").create()
