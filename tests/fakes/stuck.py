"""A user's module: the digits model, in which one process hangs.

hparams:
  stuck_in: `build_model` or `step`, the place where it hangs.
  stuck_task: The process, for example `worker-0`.
"""

import os
import time

import tensorflow as tf
from model import build_model as build_digits

from tfx_distribute.trainer_module.job.cluster import task_from_environment


def build_model(context):
    is_this_process = task_from_environment(os.environ).file_name == context.hparams["stuck_task"]
    if is_this_process and context.hparams["stuck_in"] == "build_model":
        time.sleep(10**6)
    model = build_digits(context)
    if is_this_process and context.hparams["stuck_in"] == "step":
        model.add_loss(lambda: tf.py_function(lambda: time.sleep(10**6) or 0.0, [], tf.float32))
    return model
