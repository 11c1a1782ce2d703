"""A user's module: the digits model with a callback that injects faults once.

A fault hits one process of the cluster, at a training step or during a save.

hparams:
  fault: A key of FAULTS.
  fault_task: The process, for example `worker-0`.
  fault_step: The training step after which to inject the fault.
  fault_save: Instead, the number of the save after which to inject it, from 1.
  fault_file: A file that records that the fault was injected.
  faults: Instead of all these, a list of several faults, each with these keys.
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


FAULTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "out of memory": _out_of_memory,
}


class Fault(tf.keras.callbacks.Callback):
    def __init__(self, hparams):
        super().__init__()
        self._hparams = hparams
        self._struck = pathlib.Path(hparams["fault_file"])
        self.batches = 0  # saved and restored with the training state

    def _due(self):
        is_this_process = task_from_environment(os.environ).file_name == self._hparams["fault_task"]
        return is_this_process and not self._struck.exists()

    def _strike(self):
        self._struck.write_text(json.dumps({"step": int(self.model.optimizer.iterations.numpy()), "at": time.time()}))
        FAULTS[self._hparams["fault"]]()
        time.sleep(0.2)  # until the signal arrives

    def on_train_begin(self, logs=None):
        write, saved_paths = tf.train.Checkpoint.write, []

        def write_and_strike(checkpoint, path, options=None):
            saved_paths.append(path)
            is_this_save = self._hparams.get("fault_save") == len(saved_paths)

            def strike():
                if is_this_save and self._due():
                    self._strike()

            if options is None:
                write(checkpoint, path)
                strike()
            else:  # strikes when the variables have been written in the background
                options.experimental_write_callbacks.insert(0, strike)
                write(checkpoint, path, options)

        tf.train.Checkpoint.write = write_and_strike

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if int(self.model.optimizer.iterations.numpy()) == self._hparams.get("fault_step") and self._due():
            self._strike()


def callbacks(context):
    faults = context.hparams.get("faults", [context.hparams] if "fault" in context.hparams else [])
    return [*map(Fault, faults)]
