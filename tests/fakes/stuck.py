"""The digits model, of which one process makes no progress: in `build_model`, or in a training step.

hparams: `stuck_in`, `build_model` or `step`; `stuck_task`, such as `worker-0`.
"""

import os
import time

import tensorflow as tf
from model import build_model as build_digits

from tfx_distribute.trainer_module.job.cluster import task_from_environment


def build_model(context):
    here = task_from_environment(os.environ).file_name == context.hparams["stuck_task"]
    if here and context.hparams["stuck_in"] == "build_model":
        time.sleep(10**6)
    model = build_digits(context)
    if here and context.hparams["stuck_in"] == "step":
        model.add_loss(lambda: tf.py_function(lambda: time.sleep(10**6) or 0.0, [], tf.float32))
    return model
