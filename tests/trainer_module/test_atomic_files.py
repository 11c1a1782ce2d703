import os
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files


def test_processes_that_write_at_once_do_not_spoil_each_other(tmp_path):
    """One of the documents stays, whole, and nothing else."""
    path, texts = str(tmp_path / "error.json"), [character * 100_000 for character in "ab"]
    children = []
    for text in texts:
        if not (child := os.fork()):
            for _ in range(50):
                atomic_files.write(path, text)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert atomic_files.read(path) in texts
    assert os.listdir(tmp_path) == ["error.json"]


def test_a_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "taken" / "below").mkdir(parents=True)
    with pytest.raises(tf.errors.OpError):
        atomic_files.write(str(tmp_path / "taken"), "text")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["taken"]
