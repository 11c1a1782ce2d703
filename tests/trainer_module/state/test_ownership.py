"""Tests who may write to a saved state."""

import pytest

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


def test_a_state_that_was_removed_is_free(tmp_path):
    ownership.check(str(tmp_path / "gone"), "/runs/1")
