"""Keeps what a training saves: JSON documents, and the checkpoints that they name.

Each document is replaced atomically after everything else is written, so a process that
is killed in between leaves the previous one intact.

The pipeline step holds the lock of a saved state; the processes that train on other
machines do not. If the step is lost, they continue until its lease expires. A run that
starts meanwhile finds no lock, and both would write to the same files. So a file names
the owner of the state, and a training that is no longer the owner ends before it
changes which files count.
"""

import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.state import saved_step

OWNER_FILE = "owner"


def take_ownership(root: str, owner: str) -> None:
    """Makes a run the owner of a saved state.

    `owner` identifies the run: the address of its result, which is unique to the run
    and the same in each of its attempts.
    """
    atomic_files.write(f"{root}/{OWNER_FILE}", owner)


class StateFolder:
    """Folder of what trainings with the same settings save.

    States of other settings do not fit. They have folders of their own below that of
    the run, so that a mistyped number of workers costs nothing. Arguments are as in
    `Checkpoints`.
    """

    def __init__(self, root: str, settings: Mapping[str, Any], owner: str):
        self._root, self._settings, self._owner = root, dict(settings), owner
        self.path = f"{root}/{hashlib.sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]}"

    def prepare(self) -> None:
        """Creates the folder. Raises TrainingError if another run has the root."""
        tf.io.gfile.makedirs(self.path)
        self._check_ownership()

    def read(self, kind: str) -> dict[str, Any] | None:
        """Returns the document of a kind; None if there is none."""
        path = f"{self.path}/{kind}.json"
        text = atomic_files.read(path)
        return None if text is None else saved_step.parse(text, path)

    def describe_others(self) -> str:
        """Says what the furthest state of other settings was made with, if any."""
        paths = saved_step.find(self._root, saved_step.STATE_FILE)
        others = [saved_step.parse(atomic_files.read(path) or "", path) for path in paths if not path.startswith(self.path)]
        if not others:
            return ""
        then, now = max(others, key=lambda other: other["position"]["step"])["made_with"], self._settings
        return "; ".join(f"{name}={then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name])

    def commit(self, kind: str, step: int, document: Mapping[str, Any], write: Callable[[str], object]) -> None:
        """Writes a checkpoint, then the document that names it; removes the one before.

        `write` is called with the beginning of the names of the checkpoint's files.
        """
        name = f"{kind}-{step}-{uuid.uuid4().hex[:8]}"
        path = f"{self.path}/{name}"
        write(path)
        for file in tf.io.gfile.glob(f"{path}.*"):
            atomic_files.sync(file)
        self._check_ownership()  # again: variables may take minutes to write
        named = {**document, "checkpoint": name, "made_with": self._settings}
        atomic_files.write(f"{self.path}/{kind}.json", json.dumps(named, indent=1), durable=True)
        self.sweep(kind)

    def _check_ownership(self) -> None:
        current = atomic_files.read(f"{self._root}/{OWNER_FILE}")
        if current and current != self._owner:
            raise TrainingError(
                f"checkpoint_dir: another run of the same training has taken the saved state {self._root}, so this one "
                "ends; nothing follows it any more, or it was started twice"
            )

    def sweep(self, kind: str) -> None:
        """Removes the files of all checkpoints but the one that counts, if it can.

        A file system over a network may report an error although it has replaced the
        document: what counts is what can be read.
        """
        with contextlib.suppress(tf.errors.OpError, OSError, TrainingError):
            kept = (self.read(kind) or {"checkpoint": ""})["checkpoint"]
            for name in tf.io.gfile.listdir(self.path):
                if name.startswith(f"{kind}-") and not name.startswith(f"{kept}."):
                    path = f"{self.path}/{name}"
                    # TensorFlow leaves a folder behind if it dies while it writes.
                    (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
