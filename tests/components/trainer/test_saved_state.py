"""Tests when a saved training state has an owner, and what is left of it."""

import os
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_distribute.components.launchers import locks
from tfx_distribute.components.trainer import saved_state
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Outputs
from tfx_distribute.trainer_module.state.saved_step import BEST_FILE, STATE_FILE
from tfx_distribute.trainer_module.state.state_folder import OWNER_FILE


@pytest.fixture
def outputs(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "state").mkdir()
    return Outputs(str(tmp_path / "model"), "", str(tmp_path / "result.json"), str(tmp_path / "state"))


def train(outputs):
    with saved_state.owned(outputs):
        pass


def test_a_run_owns_its_state_and_removes_it_after_success(outputs):
    with saved_state.owned(outputs):
        assert Path(outputs.checkpoint_dir, OWNER_FILE).read_text() == outputs.result_file
    assert not os.path.exists(outputs.checkpoint_dir)


def test_a_state_in_use_is_refused(outputs):
    with (
        locks.exclusive(outputs.checkpoint_dir, "the state", "wait"),
        pytest.raises(ConfigurationError, match="the saved training state .* is in use by process"),
    ):
        train(outputs)


def test_the_state_of_a_run_without_a_model_stays(outputs):
    os.rmdir(outputs.serving_model_dir)
    train(outputs)
    assert os.listdir(outputs.checkpoint_dir) == [OWNER_FILE]


def test_a_removal_that_is_interrupted_leaves_nothing_to_resume_from(outputs, monkeypatch):
    """Files that are left must not be taken for those of the next training."""

    def interrupt(path):
        raise KeyboardInterrupt

    folder = Path(outputs.checkpoint_dir, "settings")
    folder.mkdir(parents=True)
    for name in (STATE_FILE, BEST_FILE, "best-10.index"):
        (folder / name).write_text("{}")
    monkeypatch.setattr(tf.io.gfile, "rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(outputs)
    assert os.listdir(folder) == ["best-10.index"]
