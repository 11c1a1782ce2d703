"""Prepares the fork server of training processes; see `fork_server`."""

import signal
import sys

import tensorflow as tf

from tfx_distribute.trainer_module import process
from tfx_distribute.trainer_module.liveness import exposure
from tfx_distribute.trainer_module.loop import converted_ahead


def prepare() -> dict[str, str]:
    """Does once what each training process would have to do.

    Returns `exposure`: who can connect to the servers of training processes.
    """
    _ = (tf.keras.Model, process.main)  # imports tf.keras, which is lazy, now and not in every fork
    # A launcher that needs no training ends the server before it is ready. Files of the
    # conversion are removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    converted_ahead.convert()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return {"exposure": exposure.find().value}
