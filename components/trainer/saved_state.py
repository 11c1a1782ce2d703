"""Keeps a training's saved state to one live run, and removes it once that run has its model."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from absl import logging
from tfx.dsl.io import fileio

from tfx_distribute.components.launchers import locks
from tfx_distribute.trainer_module.job.training_job import Outputs


@contextlib.contextmanager
def owned(outputs: Outputs) -> Iterator[None]:
    """Holds the saved state within the block; removes it at the end if training has left a model.

    Args:
      outputs: Where the training's results go.

    Raises:
      ConfigurationError: Another live run trains with the same module, data and parameters, and saves to the same folder.
    """
    folder = outputs.checkpoint_dir
    if not folder:
        yield
        return
    advice = (
        "it trains the same module on the same data and saves its state there; wait until it ends, stop it, or write "
        "another checkpoint_dir"
    )
    with locks.exclusive(folder, "the saved training state", advice):
        yield
        if fileio.exists(outputs.serving_model_dir):
            try:
                fileio.rmtree(folder)
            except (OSError, tf.errors.OpError) as error:
                logging.warning("The state of the finished training could not be removed: %s", error)
