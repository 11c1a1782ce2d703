"""A fork server whose training processes see the first GPU as two of half its size."""

import tensorflow as tf

from tfx_distribute.trainer_module import fork_server
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import factory

_MEGABYTES = 8192  # of each half


def _halves(_: Distribution) -> list[str]:
    gpu = tf.config.list_physical_devices("GPU")[0]
    half = tf.config.LogicalDeviceConfiguration(memory_limit=_MEGABYTES)
    tf.config.set_logical_device_configuration(gpu, [half, half])
    return ["GPU:0", "GPU:1"]


factory._devices = _halves
fork_server.main("tfx_distribute.trainer_module.process:prepare")
