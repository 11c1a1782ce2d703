"""The state of training, saved again and again under the identity of the run's inputs, and taken up by the next try.

A state is a TensorFlow checkpoint, the plain values of the callbacks, and a document that names both. The document is
replaced in one step, when everything else is there: whoever is killed in the middle of a save leaves the state before.
"""

import io
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job import Recovery
from tfx_distribute.trainer_module.trainable import Trainable

STATE_FILE = "state.json"
PREFIX = "step-"
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
        recovery: Recovery,
        made_with: Mapping[str, Any],
        is_chief: bool,
        trained: Trainable,
        callbacks: Sequence[tf.keras.callbacks.Callback],
    ):
        self._folder = folder
        self._trained = trained
        self._callbacks = {f"{number}-{type(callback).__name__}": callback for number, callback in enumerate(callbacks)}
        self._recovery = recovery
        self._made_with = dict(made_with)
        self._is_chief = is_chief
        self._saved_step, self._saved_at = 0, time.monotonic()
        self.remark = ""

    def restore(self) -> Position:
        """Takes up the saved state.

        To be called in the strategy's scope, when all variables are made; after `on_train_begin`: callbacks forget in it.

        Returns:
          Where it was saved; the very beginning where there is none, or none that goes with this run: see `remark`.

        Raises:
          TrainingError: The state cannot be read.
        """
        self._saved_at = time.monotonic()
        document = self._read()
        if document is None:
            return Position()
        if document["made_with"] != self._made_with:
            then, now = document["made_with"], self._made_with
            changed = [f"{name}={then.get(name)} then, {now[name]} now" for name in now if then.get(name) != now[name]]
            self.remark = f"starts afresh: the saved state was made with {'; '.join(changed)}"
            return Position()
        path = f"{self._folder}/{document['checkpoint']}"
        try:
            self._checkpoint().read(path).assert_existing_objects_matched()
            with tf.io.gfile.GFile(f"{path}.npz", "rb") as file:
                arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
        except (tf.errors.OpError, ValueError, AssertionError, IndexError, OSError) as error:
            raise TrainingError(
                f"the saved state {path} cannot be taken up ({str(error).strip().splitlines()[0]}); remove the folder "
                f"{self._folder} to start afresh"
            ) from error
        for key, callback in self._callbacks.items():
            _set_values(callback, document["callbacks"].get(key, {}), arrays, key)
        position = Position(**document["position"])
        self._saved_step = position.step
        return position

    def due(self, step: int) -> bool:
        """Whether it is time to save."""
        if step == self._saved_step or not self._folder:
            return False
        every = self._recovery.save_checkpoints_steps
        seconds = self._recovery.save_checkpoints_secs
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
        if self._is_chief:
            try:
                self._save(position)
                self.remark = ""
            except (tf.errors.OpError, OSError) as error:  # no room; hours of training are worth more than a save
                self.remark = f"cannot save the training state, and goes on: {str(error).strip().splitlines()[0]}"
        else:  # saving takes part of all processes in step
            with tempfile.TemporaryDirectory(prefix="tfx-distribute-checkpoint-") as nowhere:
                self._checkpoint().write(f"{nowhere}/state")
        self._saved_step, self._saved_at = position.step, time.monotonic()

    def _save(self, position: Position) -> None:
        name = f"{PREFIX}{position.step}"
        folder = self._folder
        tf.io.gfile.makedirs(folder)
        self._checkpoint().write(f"{folder}/{name}")
        values: dict[str, dict[str, Any]] = {}
        arrays: dict[str, np.ndarray] = {}
        for key, callback in self._callbacks.items():
            values[key] = _values(callback, arrays, key)
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        with tf.io.gfile.GFile(f"{folder}/{name}.npz", "wb") as file:
            file.write(stream.getvalue())
        self._write(
            {
                "checkpoint": name,
                "position": asdict(position),
                "made_with": self._made_with,
                "callbacks": values,
            }
        )
        for file_name in tf.io.gfile.listdir(folder):
            if file_name.startswith(PREFIX) and not file_name.startswith(f"{name}."):
                tf.io.gfile.remove(f"{folder}/{file_name}")

    def _checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(**self._trained.state())

    def _read(self) -> dict[str, Any] | None:
        if not self._folder:
            return None
        try:
            with tf.io.gfile.GFile(f"{self._folder}/{STATE_FILE}") as file:
                return dict(json.loads(file.read()))
        except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):  # the latter: a file lies where a folder should
            return None

    def _write(self, document: dict[str, Any]) -> None:
        path = f"{self._folder}/{STATE_FILE}"
        with tf.io.gfile.GFile(f"{path}.partial", "w") as file:
            file.write(json.dumps(document, indent=1))
        tf.io.gfile.rename(f"{path}.partial", path, overwrite=True)


def _values(callback: tf.keras.callbacks.Callback, arrays: dict[str, np.ndarray], key: str) -> dict[str, Any]:
    """What a callback remembers, as far as it is plain: numbers and text; and, into `arrays`, arrays and lists of them."""
    plain: dict[str, Any] = {}
    for name, value in _remembered(callback):
        if isinstance(value, _PLAIN):
            plain[name] = value
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        elif isinstance(value, np.ndarray):
            arrays[f"{key}/{name}"] = value
        elif isinstance(value, list) and value and all(isinstance(item, np.ndarray) for item in value):
            arrays.update({f"{key}/{name}/{index}": item for index, item in enumerate(value)})
        elif isinstance(value, list) and all(isinstance(item, _PLAIN) for item in value):
            plain[name] = list(value)
    return plain


def _set_values(
    callback: tf.keras.callbacks.Callback, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray], key: str
) -> None:
    lists: dict[str, dict[int, np.ndarray]] = {}
    for path, array in arrays.items():
        owner, _, name = path.partition("/")
        if owner == key and "/" in name:
            lists.setdefault(name.partition("/")[0], {})[int(name.partition("/")[2])] = array
        elif owner == key:
            setattr(callback, name, array)
    for name, items in lists.items():
        setattr(callback, name, [items[index] for index in sorted(items)])
    for name, value in plain.items():
        setattr(callback, name, value)


def _remembered(callback: tf.keras.callbacks.Callback) -> Iterator[tuple[str, Any]]:
    # TensorBoard's writers belong to their process; everything of its own that matters lies in its files.
    if not isinstance(callback, tf.keras.callbacks.TensorBoard):
        yield from ((name, value) for name, value in vars(callback).items() if name not in ("model", "_model", "params"))
