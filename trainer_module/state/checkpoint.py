"""Saves the state of training, so that the next try of the same run can resume from it.

A state consists of a TensorFlow checkpoint, the plain values of the callbacks, and a
JSON document that names both; see `state_folder`.
"""

import contextlib
import copy
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.errors import TrainingError, first_line
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, TrainingJob
from tfx_distribute.trainer_module.keras import callback_state
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.state.state_folder import StateFolder

_KIND = "state"


@dataclass(frozen=True)
class Position:
    """A moment between two training steps.

    Attributes:
      epoch: Number of the epoch, from 0.
      step_of_epoch: Training steps of the epoch that are done.
      step: Training steps that are done in total.
    """

    epoch: int = 0
    step_of_epoch: int = 0
    step: int = 0


class Checkpoints:
    """Saves and restores the state of one run.

    If the processes of a strategy train in step, all of them have to make the same
    calls. Only the chief's files count.

    Args:
      folder: Folder of the state, the same for every try and for all processes. Empty
        to save nothing.
      made_with: Settings that the state depends on besides the run's inputs, name ->
        value, readable by people. A state that was made with other settings is not
        used, but kept for a training with these.
      owner: What this run is called as the owner of the folder; see `state_folder`.

    Attributes:
      val_metrics: Metrics of the last evaluation, which the next save contains; `find`
        sets them.
      remark: A message for the user about the state that was found, or about the last
        save. Empty if there is nothing to say.
    """

    def __init__(
        self,
        folder: str,
        fault_tolerance: FaultTolerance,
        made_with: Mapping[str, Any],
        is_chief: bool,
        model_adapter: ModelAdapter,
        callbacks: Sequence[tf.keras.callbacks.Callback],
        owner: str = "",
    ):
        self._folder = StateFolder(folder, made_with, owner) if folder else None
        self._model_adapter = model_adapter
        self._callbacks = callback_state.by_key(callbacks)
        self._initial_values: dict[str, dict[str, Any]] = {}
        self._document: dict[str, Any] = {}  # of the state that was found
        self._restored_values: dict[str, dict[str, Any]] = {}
        self._fault_tolerance = fault_tolerance
        self._is_chief = is_chief
        self._saved_step, self._saved_at = 0, time.monotonic()
        self.val_metrics: dict[str, float] = {}
        self.remark = ""

    def find(self) -> Position:
        """Looks for a saved state that this training can resume from.

        Call this after `on_train_begin`, in which callbacks reset themselves. The
        position is the start of training if no state fits this run; `remark` then says
        why.
        """
        self._saved_at = time.monotonic()
        self._initial_values = {
            key: copy.deepcopy(dict(callback_state.plain_attributes(callback))) for key, callback in self._callbacks.items()
        }
        self._document = (self._folder and self._folder.read(_KIND)) or {}
        if self._document:
            self.val_metrics = self._document["val_metrics"]
            return Position(**self._document["position"])
        if self._folder and (changed := self._folder.describe_others()):
            self.remark = f"starts from scratch: the saved state was made with {changed}; it is kept"
        return Position()

    def restore(self) -> None:
        """Restores what `find` found: variables, and attributes of callbacks.

        Call this in the strategy's scope, after all variables are created and after the
        `on_epoch_begin` of the epoch in which the state was saved: the state already
        contains what that hook did, such as a change of the learning rate.
        """
        if not self._folder or not self._document:
            return
        path = f"{self._folder.path}/{self._document['checkpoint']}"
        try:
            self._checkpoint().read(path).assert_existing_objects_matched()
            with tf.io.gfile.GFile(f"{path}.npz", "rb") as file:
                arrays = callback_state.read_arrays(io.BytesIO(file.read()))
        except (tf.errors.OpError, RuntimeError, ValueError, AssertionError, IndexError, OSError) as error:
            raise TrainingError(
                f"the saved state {path} cannot be restored ({first_line(error)}). Run the same again, in case its storage "
                f"did not answer; if that does not help, remove the folder {self._folder.path} to start from scratch"
            ) from error
        self._restored_values = {
            key: callback_state.join_arrays(plain, arrays) for key, plain in self._document["callbacks"].items()
        }
        for key, values in self._restored_values.items():
            for name, value in values.items() if key in self._callbacks else ():
                setattr(self._callbacks[key], name, value)
        self._saved_step = self._document["position"]["step"]

    def due(self, step: int) -> bool:
        """Returns True if it is time to save after `step` training steps."""
        if step == self._saved_step or not self._folder:
            return False
        every, seconds = self._fault_tolerance.save_checkpoints_steps, self._fault_tolerance.save_checkpoints_secs
        return bool(
            (every and step // every > self._saved_step // every)
            or (seconds and time.monotonic() - self._saved_at >= seconds)
        )

    def steps_until_due(self, step: int) -> int:
        """Returns the training steps until the next save; huge if saves are by time."""
        every = self._fault_tolerance.save_checkpoints_steps
        return every - step % every if every else 1 << 62

    def save(self, position: Position) -> None:
        """Saves the state; the previous one is kept until this one is complete.

        Does not raise if the files cannot be written; `remark` says why.
        """
        if not self._folder:
            return
        self.remark = ""
        if self._is_chief:
            try:
                self._folder.prepare()
            except (tf.errors.OpError, OSError) as error:
                self.remark = _save_problem(error)
        if not self._is_chief or self.remark:
            # A save in step needs every process. One without the folder, or whose files
            # do not count, still takes part and discards its files.
            save_and_discard(lambda folder: self._checkpoint().write(f"{folder}/state"))
        else:
            try:
                self._save(position, self._folder)
            except (tf.errors.OpError, OSError) as error:  # hours of training are worth more than a save
                self.remark = _save_problem(error)
                self._folder.sweep(_KIND)
        self._saved_step, self._saved_at = position.step, time.monotonic()

    def _save(self, position: Position, folder: StateFolder) -> None:
        values: dict[str, dict[str, Any]] = {}
        arrays: dict[str, Any] = {}
        for key, callback in self._callbacks.items():
            # Values that the callback was constructed with belong to its process and
            # its run, for example whether this is the chief, or a path to write to.
            changed = {
                name: value
                for name, value in callback_state.plain_attributes(callback)
                if name in self._restored_values.get(key, {})
                or not callback_state.are_equal(value, self._initial_values.get(key, {}).get(name))
            }
            values[key] = callback_state.separate_arrays(changed, arrays, key)
        stream = io.BytesIO()
        np.savez(stream, **arrays)

        def write(path: str) -> None:
            self._checkpoint().write(path)
            with tf.io.gfile.GFile(f"{path}.npz", "wb") as file:
                file.write(stream.getvalue())

        document = {"position": asdict(position), "callbacks": values, "val_metrics": self.val_metrics}
        folder.commit(_KIND, position.step, document, write)

    def _checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(**self._model_adapter.state())


def describe_settings(job: TrainingJob, plan: Plan) -> dict[str, Any]:
    """Returns the settings that a saved state depends on besides the run's inputs.

    Any strategy can restore the state if these are the same.
    """
    return {
        "variables": _describe_division(job.distribution),
        "global_batch_size": plan.global_batch_size,
        "steps_per_epoch": plan.steps_per_epoch,
    }


def _describe_division(distribution: Distribution) -> str:
    """Describes how variables are divided among devices.

    A checkpoint of undivided variables fits any strategy that does not divide them.
    """
    strategy_info = distribution.info
    if strategy_info.name == "model_parallel":
        return f"divided on the mesh {distribution.mesh or 'of all devices'}"
    if strategy_info.parameter_servers and distribution.partition_min_bytes:
        return f"divided among parameter servers (partition_min_bytes={distribution.partition_min_bytes})"
    return "whole"


def save_and_discard(save: Callable[[str], Any]) -> None:
    """Saves into a temporary folder and removes it.

    This is for a process that has to take part in saving, but whose files do not count.
    The others have what they need from this one before it writes, so errors in writing
    are ignored. If one of them failed, the next training step reports that.
    """
    with atomic_files.throwaway_folder() as folder, contextlib.suppress(tf.errors.OpError, OSError):
        save(folder)


def _save_problem(error: Exception) -> str:
    return f"cannot save the training state, training continues: {first_line(error)}"
