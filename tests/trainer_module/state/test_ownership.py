"""Tests who may write to a saved state."""

import os

import pytest

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.state import ownership


def test_whoever_takes_a_state_has_it(tmp_path):
    folder = str(tmp_path)
    ownership.check(folder, "/runs/1")
    for owner in ("/runs/1", "/runs/1", "gs://bucket/runs/2"):
        ownership.take(folder, owner)
        ownership.check(folder, owner)
    with pytest.raises(TrainingError, match="^checkpoint_dir: another run of the same training has taken the saved state"):
        ownership.check(folder, "/runs/1")


def test_a_state_goes_back_to_its_owner_before(tmp_path):
    folder = str(tmp_path)
    ownership.give_back(folder, "/runs/1", ownership.take(folder, "/runs/1"))
    assert not list(tmp_path.iterdir())
    ownership.take(folder, "/runs/1")
    before = ownership.take(folder, "/runs/2")
    ownership.take(folder, "/runs/3")
    ownership.give_back(folder, "/runs/2", before)
    ownership.check(folder, "/runs/3")
    ownership.give_back(folder, "/runs/3", before)
    ownership.check(folder, "/runs/1")


def test_a_state_changes_its_owner_on_a_full_disk(tmp_path):
    ownership.take(str(tmp_path), "/runs/a-long-name")
    os.symlink("/dev/full", atomic_files.partial_name(f"{tmp_path}/{ownership.OWNER_FILE}"))
    ownership.take(str(tmp_path), "/runs/2")
    ownership.check(str(tmp_path), "/runs/2")


def test_a_state_that_was_removed_is_free(tmp_path):
    ownership.check(str(tmp_path / "gone"), "/runs/1")
