"""Prepares the fork server of training processes; see `fork_server`."""

import tensorflow as tf

from tfx_distribute.trainer_module import process
from tfx_distribute.trainer_module.liveness import exposure


def prepare() -> dict[str, str]:
    """Does once what each training process would have to do.

    Returns `exposure`: who can connect to the servers of training processes.
    """
    _ = (tf.keras.Model, process.main)  # imports tf.keras, which is lazy, now and not in every fork
    return {"exposure": exposure.find().value}
