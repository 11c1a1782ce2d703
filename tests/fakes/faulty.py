"""The digits model, and a callback that strikes one process of its cluster, once, at a training step or in a save.

hparams: `fault`, one of FAULTS; `fault_task`, such as `worker-0`; `fault_step` or `fault_save`, when; `fault_file`, a file
that tells that it has struck; `fault_always`, so that it strikes again.
"""

import json
import os
import pathlib
import signal
import time

import tensorflow as tf
from model import build_model  # noqa: F401 (what is trained)

from tfx_distribute.trainer_module.job.cluster import task_from_environment


def _out_of_memory():
    raise tf.errors.ResourceExhaustedError(None, None, "no memory for a tensor of shape [1000000, 1000000]")


def _mistake():
    raise ZeroDivisionError("the user's own mistake")


FAULTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "out of memory": _out_of_memory,
    "mistake": _mistake,
}


class Fault(tf.keras.callbacks.Callback):
    def __init__(self, hparams):
        super().__init__()
        self._hparams = hparams
        self._struck = pathlib.Path(hparams["fault_file"])
        self.batches = 0  # remembered from try to try

    def _due(self):
        here = task_from_environment(os.environ).file_name == self._hparams["fault_task"]
        return here and (self._hparams.get("fault_always") or not self._struck.exists())

    def _strike(self):
        self._struck.write_text(json.dumps({"step": int(self.model.optimizer.iterations.numpy()), "at": time.time()}))
        FAULTS[self._hparams["fault"]]()
        time.sleep(0.2)  # a signal needs a moment

    def on_train_begin(self, logs=None):
        write, saves = tf.train.Checkpoint.write, []

        def write_and_strike(checkpoint, path):
            saves.append(path)
            written = write(checkpoint, path)
            if self._hparams.get("fault_save") == len(saves) and self._due():
                self._strike()
            return written

        tf.train.Checkpoint.write = write_and_strike

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if int(self.model.optimizer.iterations.numpy()) == self._hparams.get("fault_step") and self._due():
            self._strike()


def callbacks(context):
    return [Fault(context.hparams)] if "fault" in context.hparams else []
