"""Loads the module's Keras callbacks; on all processes but the chief, Keras's own write to a temporary folder."""

import os
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.user_code import module_loader as module_lib

_keras = tf.keras.callbacks

# Attributes that hold the place that a callback of Keras writes to.
_WRITE_TO = {_keras.ModelCheckpoint: "filepath", _keras.CSVLogger: "filename", _keras.TensorBoard: "log_dir"}

# Callbacks that read or change the model, which takes part of all processes in step.
_IN_STEP = (
    _keras.ModelCheckpoint,
    _keras.EarlyStopping,
    _keras.ReduceLROnPlateau,
    _keras.LearningRateScheduler,
)


def load(
    module: UserModule, context: module_lib.ModelContext, strategy: tf.distribute.Strategy
) -> list[tf.keras.callbacks.Callback]:
    """Returns what the module's `callbacks(context)` makes.

    Processes in step call the same callbacks, since saving a model or reading its weights takes part of all of them. So
    that each file is written once, Keras's callbacks write to `context.model_run_dir` on processes other than the chief,
    where it is temporary, wherever the module wants their files.

    Args:
      module: The user's module, loaded.
      context: Passed to the module's function.
      strategy: The strategy of this process.

    Raises:
      ConfigurationError: One of the callbacks cannot work here.
    """
    callbacks = module_lib.load_callbacks(module, context)
    for callback in callbacks:
        if isinstance(callback, _keras.BackupAndRestore):
            raise ConfigurationError(
                "module: callbacks returned a BackupAndRestore, which would resume the weights without the position in the "
                "data; leave it out: training is saved every save_checkpoints_secs and resumes by itself"
            )
        if isinstance(callback, _keras.TensorBoard) and callback.histogram_freq and isinstance(strategy, MeshStrategy):
            raise ConfigurationError(
                "module: callbacks returned a TensorBoard with histogram_freq, but TensorBoard cannot make histograms of "
                "variables divided over a mesh; write histogram_freq=0"
            )
        if not context.is_chief:
            _write_below(context.model_run_dir, callback)
    return callbacks


def check_same_everywhere(callbacks: Sequence[tf.keras.callbacks.Callback], agree: Callable[..., list[float]]) -> None:
    """Checks that all processes have the same callbacks that read or change the model.

    Args:
      callbacks: The callbacks of this process.
      agree: Returns the means of numbers over all processes.

    Raises:
      ConfigurationError: Some process has more of one kind than another, which would wait for it in vain.
    """
    numbers = [sum(isinstance(callback, kind) for callback in callbacks) for kind in _IN_STEP]
    means, squares = agree(*numbers), agree(*(number**2 for number in numbers))
    for kind, mean, square in zip(_IN_STEP, means, squares, strict=True):
        if square > mean**2:
            raise ConfigurationError(
                f"module: callbacks returned a {kind.__name__} on some processes and none on others; return it on all of "
                "them, without asking for context.is_chief: only the chief's files are kept"
            )


def _write_below(folder: str, callback: tf.keras.callbacks.Callback) -> None:
    for kind, attribute in _WRITE_TO.items():
        if isinstance(callback, kind):
            name = os.path.basename(str(getattr(callback, attribute)).rstrip("/"))
            # Without the number of the epoch: nobody reads these files, so one is enough.
            setattr(callback, attribute, f"{folder}/unused-{re.sub(r'{[^}]*}', '', name)}")
