"""The name of a strategy -> the `tf.distribute.Strategy` of this process.

A strategy that is not here yet belongs in `_FACTORIES`, and gets `built=True` in `compatibility.STRATEGIES`.
"""

from collections.abc import Callable

import tensorflow as tf

from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import Distribution

_current: tf.distribute.Strategy | None = None
_asked_for = False


def get_strategy() -> tf.distribute.Strategy:
    """The strategy that the pipeline's parameters ask for, made for this process. For use in a `run_fn`.

    Outside a training process (a notebook, a unit test of the module, a stock TFX Trainer) it is TensorFlow's default
    strategy, so that the module runs there too.
    """
    global _asked_for
    _asked_for = True
    return _current if _current is not None else tf.distribute.get_strategy()


def was_asked_for() -> bool:
    """Whether `get_strategy` was called in this process."""
    return _asked_for


def create(distribution: Distribution) -> tf.distribute.Strategy:
    """Makes the strategy and keeps it for `get_strategy`. Once a process, before any other TensorFlow operation.

    Args:
      distribution: What the pipeline's parameters ask for. The cluster comes from this process's TF_CONFIG.

    Raises:
      ConfigurationError: The machine has not the devices that are asked for.
    """
    global _current, _asked_for
    row = compatibility.strategy_named(distribution.strategy)
    _current = _FACTORIES[distribution.strategy](distribution, _devices(distribution, row.all_devices))
    _asked_for = False
    return _current


def _devices(distribution: Distribution, all_devices: bool) -> list[str]:
    """Names of the devices of this process that take part, such as `GPU:0`; splits the CPU where several are wanted."""
    kind, count = distribution.accelerator_type, distribution.accelerator_count
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "gpu" or (kind == "auto" and gpus):
        if len(gpus) < max(count, 1):
            raise ConfigurationError(
                f"accelerator_count: {max(count, 1)} GPUs are asked for, but this process sees {len(gpus)}; "
                f"write accelerator_count={len(gpus)}"
                if gpus
                else "accelerator_type: GPUs are asked for, but this process sees none; write accelerator_type=cpu"
            )
        used = gpus[: (count or len(gpus)) if all_devices else 1]
        tf.config.set_visible_devices(used, "GPU")
        return [f"GPU:{index}" for index in range(len(used))]
    tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{index}" for index in range(max(count, 1))]


def _default(distribution: Distribution, devices: list[str]) -> tf.distribute.Strategy:
    del distribution, devices
    return tf.distribute.get_strategy()


def _one_device(distribution: Distribution, devices: list[str]) -> tf.distribute.Strategy:
    del distribution
    return tf.distribute.OneDeviceStrategy(devices[0])


def _mirrored(distribution: Distribution, devices: list[str]) -> tf.distribute.Strategy:
    ops = {
        "auto": None,
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
    }[distribution.all_reduce]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=ops() if ops else None)


def _multi_worker_mirrored(distribution: Distribution, devices: list[str]) -> tf.distribute.Strategy:
    if len(devices) > 1 and devices[0].startswith("CPU"):
        # The strategy takes one CPU device or all visible GPUs of a process and has no argument to say otherwise.
        raise ConfigurationError(
            f"accelerator_count: multi_worker_mirrored uses one device of a process that has no GPU, but "
            f"accelerator_count is {len(devices)}; write accelerator_count=1 and more workers"
        )
    communication = tf.distribute.experimental.CommunicationImplementation(distribution.all_reduce.upper())
    options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _central_storage(distribution: Distribution, devices: list[str]) -> tf.distribute.Strategy:
    del distribution
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices=devices, parameter_device="CPU:0")


_FACTORIES: dict[str, Callable[[Distribution, list[str]], tf.distribute.Strategy]] = {
    "default": _default,
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "central_storage": _central_storage,
}
