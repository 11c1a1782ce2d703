"""A user's module: the digits model, whose `build_model` hangs in one process.

hparams:
  stuck_task: The process, for example `worker-0`.
"""

import os
import time

from model import build_model as build_digits

from tfx_distribute.trainer_module.job.cluster import task_from_environment


def build_model(context):
    if task_from_environment(os.environ).file_name == context.hparams["stuck_task"]:
        time.sleep(10**6)
    return build_digits(context)
