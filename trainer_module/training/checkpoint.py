"""The state of training, saved again and again under the identity of the run's inputs, and taken up by the next try.

A state is a TensorFlow checkpoint, the plain values of the callbacks, and a document that names both. The document is
replaced in one step, when everything else is there: whoever is killed in the middle of a save leaves the state before.
"""

import collections
import contextlib
import copy
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import FaultTolerance
from tfx_distribute.trainer_module.lifecycle import atomic_files
from tfx_distribute.trainer_module.training.model_adapters import ModelAdapter

STATE_FILE = "state.json"
PREFIX = "step-"
# Where saves are a matter of time alone, the first comes this soon, the next ones after twice as long each, up to
# `save_checkpoints_secs`: a training that is struck in its first minute has something to continue from, too.
FIRST_SAVE_SECONDS = 5.0
MAX_SAVING_SHARE = 0.1  # of the time until then that a save may take for the next one to come sooner
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Position:
    """Where training is.

    Attributes:
      epoch: Number of the epoch, from 0.
      step_of_epoch: Training steps of it that were taken.
      step: Training steps that were taken in all.
    """

    epoch: int = 0
    step_of_epoch: int = 0
    step: int = 0


class Checkpoints:
    """The saved state of one run. Every process of a strategy in step has to do the same; only the chief's files count.

    Args:
      folder: Where the state lies; the same for every try, and for all processes. Empty to save none.
      recovery: How often to save.
      made_with: What the state depends on beside the run's inputs, name -> value, for people to read. One that was made
        with anything else is not taken up.
      is_chief: Whether this is the chief.
      trained: What is trained.
      callbacks: Callbacks that remember something.

    Attributes:
      remark: What a person should know of the state that was found, or of the last save.
    """

    def __init__(
        self,
        folder: str,
        recovery: FaultTolerance,
        made_with: Mapping[str, Any],
        is_chief: bool,
        trained: ModelAdapter,
        callbacks: Sequence[tf.keras.callbacks.Callback],
    ):
        self._folder = folder
        self._trained = trained
        self._callbacks = _named(callbacks)
        self._at_first: dict[str, dict[str, Any]] = {}
        self._document: dict[str, Any] = {}  # of the state that was found
        self._found: dict[str, dict[str, Any]] = {}
        self._recovery = recovery
        self._made_with = dict(made_with)
        self._is_chief = is_chief
        self._saved_step, self._saved_at = 0, time.monotonic()
        seconds = recovery.save_checkpoints_secs
        self._interval = seconds if recovery.save_checkpoints_steps else min(FIRST_SAVE_SECONDS, seconds)
        self._kept = ""  # what the files of the last whole state begin with
        self.remark = ""

    def find(self) -> Position:
        """Looks for a saved state that this training can continue from.

        To be called after `on_train_begin`, where callbacks set themselves back.

        Returns:
          Where it was saved; the very beginning where there is none, or none that goes with this run: see `remark`.
        """
        self._saved_at = time.monotonic()
        self._at_first = {key: copy.deepcopy(dict(_remembered(callback))) for key, callback in self._callbacks.items()}
        self._document = {}
        text = atomic_files.read(f"{self._folder}/{STATE_FILE}") if self._folder else None
        if text is None:
            return Position()
        document = json.loads(text)
        self._kept = f"{document['checkpoint']}."
        if document["made_with"] != self._made_with:
            then, now = document["made_with"], self._made_with
            changed = [f"{name}={then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name]]
            self.remark = f"starts afresh: the saved state was made with {'; '.join(changed)}"
            return Position()
        self._document = document
        return Position(**document["position"])

    def restore(self) -> None:
        """Restores the state that was found, if any: variables, and what callbacks remember.

        To be called in the strategy's scope, when all variables are made; after the `on_epoch_begin` of the epoch in which
        the state was saved. The saved state already contains what that hook did, such as a change of the learning rate.

        Raises:
          TrainingError: The state cannot be read.
        """
        if not self._document:
            return
        path = f"{self._folder}/{self._document['checkpoint']}"
        try:
            self._checkpoint().read(path).assert_existing_objects_matched()
            with tf.io.gfile.GFile(f"{path}.npz", "rb") as file:
                arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
        except (tf.errors.OpError, ValueError, AssertionError, IndexError, OSError) as error:
            raise TrainingError(
                f"the saved state {path} cannot be taken up ({str(error).strip().splitlines()[0]}); remove the folder "
                f"{self._folder} to start afresh"
            ) from error
        self._found = {key: _joined(plain, arrays) for key, plain in self._document["callbacks"].items()}
        for key, values in self._found.items():
            for name, value in values.items() if key in self._callbacks else ():
                setattr(self._callbacks[key], name, value)
        self._saved_step = self._document["position"]["step"]

    def due(self, step: int) -> bool:
        """Whether it is time to save."""
        if step == self._saved_step or not self._folder:
            return False
        every = self._recovery.save_checkpoints_steps
        seconds = self._interval
        return bool(
            (every and step - self._saved_step >= every) or (seconds and time.monotonic() - self._saved_at >= seconds)
        )

    def steps_until_due(self, step: int) -> int:
        """Training steps until it is time to save, where that is a matter of steps; else very many."""
        every = self._recovery.save_checkpoints_steps
        return max(1, self._saved_step + every - step) if every else 1 << 62

    def save(self, position: Position) -> None:
        """Saves the state; the one before is kept until this one is complete."""
        if not self._folder:
            return
        began = time.monotonic()
        self.remark = self._cannot_write() if self._is_chief else ""
        if not self._is_chief or self.remark:
            # Saving takes part of all processes in step: one that cannot save where it should does it elsewhere, in vain.
            discard(lambda folder: self._checkpoint().write(f"{folder}/state"))
        else:
            try:
                self._save(position)
            except (tf.errors.OpError, OSError) as error:  # hours of training are worth more than a save
                self.remark = _not_saved(error)
            with contextlib.suppress(tf.errors.OpError, OSError):
                self._tidy()
        self._saved_step, self._saved_at = position.step, time.monotonic()
        soonest = (self._saved_at - began) / MAX_SAVING_SHARE
        self._interval = min(max(2 * self._interval, soonest), self._recovery.save_checkpoints_secs)

    def _cannot_write(self) -> str:
        """Why nothing can be written to the folder; empty where it can."""
        try:
            tf.io.gfile.makedirs(self._folder)
            with tf.io.gfile.GFile(f"{self._folder}/{PREFIX}probe", "w") as file:
                file.write("x" * 4096)
            tf.io.gfile.remove(f"{self._folder}/{PREFIX}probe")
        except (tf.errors.OpError, OSError) as error:
            return _not_saved(error)
        return ""

    def _save(self, position: Position) -> None:
        name = f"{PREFIX}{position.step}"
        folder = self._folder
        self._checkpoint().write(f"{folder}/{name}")
        values: dict[str, dict[str, Any]] = {}
        arrays: dict[str, np.ndarray] = {}
        for key, callback in self._callbacks.items():
            # What it was made with belongs to its process and its run: whether this is the chief, say, or where to write.
            changed = {
                name: value
                for name, value in _remembered(callback)
                if name in self._found.get(key, {}) or not _same(value, self._at_first.get(key, {}).get(name))
            }
            values[key] = _divided(changed, arrays, key)
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        with tf.io.gfile.GFile(f"{folder}/{name}.npz", "wb") as file:
            file.write(stream.getvalue())
        document = {
            "checkpoint": name,
            "position": asdict(position),
            "made_with": self._made_with,
            "callbacks": values,
        }
        atomic_files.write(f"{folder}/{STATE_FILE}", json.dumps(document, indent=1))
        self._kept = f"{name}."

    def _tidy(self) -> None:
        """Removes what belongs to other states than the last whole one, whole or not."""
        for name in tf.io.gfile.listdir(self._folder):
            if name.startswith(PREFIX) and not (self._kept and name.startswith(self._kept)):
                path = f"{self._folder}/{name}"
                # TensorFlow leaves a folder where it dies in the middle of writing.
                (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)

    def _checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(**self._trained.state())


def discard(save: Callable[[str], Any]) -> None:
    """Saves into a temporary folder that is removed, on a process whose files do not count.

    It does not matter if writing fails, on a full disk for instance: the other processes have what they need of this one
    before it writes. If it is one of them that failed, the next training step says so.

    Args:
      save: Called with the folder.
    """
    with atomic_files.throwaway_folder() as folder, contextlib.suppress(tf.errors.OpError, OSError):
        save(folder)


def _not_saved(error: Exception) -> str:
    return f"cannot save the training state, and goes on: {str(error).strip().splitlines()[0]}"


def _named(callbacks: Sequence[tf.keras.callbacks.Callback]) -> dict[str, tf.keras.callbacks.Callback]:
    """Callbacks by kind and number among those of their kind: the chief may have more than others."""
    numbers: collections.Counter[str] = collections.Counter()
    named = {}
    for callback in callbacks:
        kind = type(callback).__name__
        named[f"{kind}-{numbers[kind]}"] = callback
        numbers[kind] += 1
    return named


def _remembered(callback: tf.keras.callbacks.Callback) -> Iterator[tuple[str, Any]]:
    """What a callback has in its attributes, as far as it is plain: numbers, text, arrays, and lists of them."""
    # TensorBoard's writers belong to their process; everything of its own that matters lies in its files.
    if isinstance(callback, tf.keras.callbacks.TensorBoard):
        return
    for name, value in vars(callback).items():
        if isinstance(value, list) and all(isinstance(item, _PLAIN) or _is_array(item) for item in value):
            yield name, list(value)
        elif isinstance(value, _PLAIN) or _is_array(value):
            yield name, value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if _is_array(one) or _is_array(other):
        return type(one) is type(other) and np.array_equal(one, other)
    return bool(one == other)


def _divided(values: Mapping[str, Any], arrays: dict[str, np.ndarray], key: str) -> dict[str, Any]:
    """Values as JSON has them; what is an array goes into `arrays`, and its name there into its place."""

    def put(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [put(item, f"{name}/{number}") for number, item in enumerate(value)]
        if not _is_array(value):
            return value
        arrays[name] = np.asarray(value)
        return {"array": name}

    return {name: put(value, f"{key}/{name}") for name, value in values.items()}


def _joined(values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What `_divided` has divided."""

    def get(value: Any) -> Any:
        if isinstance(value, list):
            return [get(item) for item in value]
        return arrays[value["array"]][()] if isinstance(value, dict) else value  # [()]: a scalar is none of NumPy's arrays

    return {name: get(value) for name, value in values.items()}
