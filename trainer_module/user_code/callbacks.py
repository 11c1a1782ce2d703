"""Loads the module's Keras callbacks and redirects what they write outside the chief.

On every other process, Keras's own callbacks write to a temporary folder.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import UserModule
from tfx_distribute.trainer_module.user_code import module_loader

_keras = tf.keras.callbacks

# Keras callback -> its attribute with the path that it writes to.
_PATH_ATTRIBUTES = {_keras.ModelCheckpoint: "filepath", _keras.CSVLogger: "filename", _keras.TensorBoard: "log_dir"}

# Callbacks that read or change the model, which needs all processes in step to take
# part.
_IN_STEP = (
    _keras.ModelCheckpoint,
    _keras.EarlyStopping,
    _keras.ReduceLROnPlateau,
    _keras.LearningRateScheduler,
)


def load(module: UserModule, context: module_loader.ModelContext) -> list[tf.keras.callbacks.Callback]:
    """Returns the callbacks that the module's `callbacks(context)` makes.

    Processes in step call the same callbacks, since all of them have to take part when
    one saves the model or reads its weights. So that each file is written only once, on
    processes other than the chief Keras's callbacks write to `context.model_run_dir`,
    which is temporary there, instead of the path that the module chose.
    """
    make_callbacks = module_loader.load_optional(module, "callbacks")
    callbacks = _as_list(make_callbacks(context)) if make_callbacks else []
    for callback in callbacks:
        if isinstance(callback, _keras.BackupAndRestore):
            raise ConfigurationError(
                "module: callbacks returned a BackupAndRestore, which would resume the weights without the position in the "
                "data; leave it out: training is saved every save_checkpoints_secs and resumes by itself"
            )
        if not context.is_chief:
            _redirect(callback, context.model_run_dir)
    return callbacks


def _as_list(returned: Any) -> list[tf.keras.callbacks.Callback]:
    callbacks = list(returned) if isinstance(returned, Iterable) else None
    # Not by their class: a module may use those of the other Keras.
    if callbacks is None or any(isinstance(each, type) or not hasattr(each, "set_model") for each in callbacks):
        raise ConfigurationError(
            f"module: callbacks returned {returned!r:.100}; return a list of callbacks, such as "
            "[tf.keras.callbacks.TerminateOnNaN()], or []"
        )
    return callbacks


def check_same_everywhere(callbacks: Sequence[tf.keras.callbacks.Callback], agree: Callable[..., list[float]]) -> None:
    """Checks that all processes have the same callbacks that read or change the model.

    A process with more of them would wait for the others forever. `agree` returns the
    means of its arguments over all processes.
    """
    numbers = [sum(isinstance(callback, kind) for callback in callbacks) for kind in _IN_STEP]
    means, squares = agree(*numbers), agree(*(number**2 for number in numbers))
    for kind, mean, square in zip(_IN_STEP, means, squares, strict=True):
        if square > mean**2:
            raise ConfigurationError(
                f"module: callbacks returned a {kind.__name__} on some processes and none on others; return it on all of "
                "them, without asking for context.is_chief: only the chief's files are kept"
            )


def _redirect(callback: tf.keras.callbacks.Callback, folder: str) -> None:
    """Makes a callback of Keras write below a folder."""
    for kind, attribute in _PATH_ATTRIBUTES.items():
        if isinstance(callback, kind):
            name = os.path.basename(str(getattr(callback, attribute)).rstrip("/"))
            # Drops the epoch's number: nobody reads these files, so one is enough.
            setattr(callback, attribute, f"{folder}/unused-{re.sub(r'{[^}]*}', '', name)}")
