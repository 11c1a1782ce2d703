"""Makes this process's `tf.distribute.Strategy` from the name of a strategy.

Each strategy has a function in `_FACTORIES` and a row in `strategy_info.STRATEGIES`.
"""

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn
from unittest import mock

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules, strategy_info, strategy_table
from tfx_distribute.trainer_module.job.cluster import REQUESTED_GPUS, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance
from tfx_distribute.trainer_module.liveness import cluster_peers
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy

_STRATEGY_CLASSES = [
    each
    for module in (tf.distribute, tf.distribute.experimental)
    for name, each in vars(module).items()
    if name.endswith("Strategy") and each is not tf.distribute.Strategy
]

_current: tf.distribute.Strategy | None = None
_asked_for = False


def get_strategy() -> tf.distribute.Strategy:
    """Returns this process's strategy, chosen by the pipeline. For use in a `run_fn`.

    Outside a training process (a notebook, a unit test of the module, a stock TFX
    Trainer) it is TensorFlow's default strategy, so that the module runs there too.

    ```python
    def run_fn(fn_args):
        with get_strategy().scope():
            model = ...
    ```
    """
    global _asked_for
    _asked_for = True
    return _current if _current is not None else tf.distribute.get_strategy()


def was_asked_for() -> bool:
    """Returns True if `get_strategy` was called in this process."""
    return _asked_for


def create(
    distribution: Distribution, heartbeat_timeout_secs: int = FaultTolerance.heartbeat_timeout_secs
) -> tf.distribute.Strategy:
    """Makes the strategy and keeps it for `get_strategy`.

    Call this once per process, before any other TensorFlow operation. The cluster comes
    from this process's TF_CONFIG.
    """
    global _current, _asked_for
    with _heartbeat_timeout(heartbeat_timeout_secs):
        _current = _FACTORIES[distribution.strategy](distribution)
    _asked_for = False
    return _current


@contextlib.contextmanager
def refusing_own_strategies(function: str) -> Iterator[None]:
    """Makes classes of `tf.distribute` raise ConfigurationError within the block.

    A strategy that a module makes in one of several processes sees the devices of all
    of them. TensorFlow does not refuse it: training then hangs, or ends with a
    segmentation fault.
    """

    def refuse(strategy: tf.distribute.Strategy, *_: Any, **__: Any) -> NoReturn:
        caller = sys._getframe(1)
        raise ConfigurationError(
            f"module: {function} made a {type(strategy).__name__} of its own ({caller.f_code.co_filename}, line "
            f"{caller.f_lineno}), but it is one of several processes that train one model; call "
            "tfx_distribute.trainer_module.get_strategy() in its place and build the model in its scope()"
        )

    with contextlib.ExitStack() as stack:
        for strategy_class in _STRATEGY_CLASSES:
            stack.enter_context(mock.patch.object(strategy_class, "__init__", refuse))
        yield


@contextlib.contextmanager
def _heartbeat_timeout(seconds: int) -> Iterator[None]:
    """Sets the heartbeat timeout of TensorFlow's coordination service within the block.

    TensorFlow configures that service when a strategy is made. It has no public API for
    the timeout (TensorFlow 2.16 and 2.21).
    """
    context = importlib.import_module("tensorflow.python.eager.context").context()
    configure = functools.partial(context.configure_coordination_service, heartbeat_timeout_in_ms=1000 * seconds)
    with mock.patch.object(context, "configure_coordination_service", configure):
        yield


def check_requested_gpus(distribution: Distribution, task: ClusterTask, environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError if a process does not see its container's GPUs.

    TensorFlow itself only logs a warning and uses the CPU. The usual reasons are an
    image without CUDA's libraries, and a driver in a folder that LD_LIBRARY_PATH does
    not name. With `accelerator_type` cpu, GPUs may be missing.
    """
    requested = int(environment.get(REQUESTED_GPUS, "0"))
    # A launcher that divides GPUs among processes sets this variable.
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    uses_cpu = distribution.accelerator_type == "cpu"
    if not requested or uses_cpu or not uses_accelerators(distribution, task) or visible in ("", "-1"):
        return
    if visible is not None:
        requested = min(requested, len(visible.split(",")))
    if len(tf.config.list_physical_devices("GPU")) < requested:
        gpus = "a GPU" if requested == 1 else f"{requested} GPUs"
        raise ConfigurationError(f"accelerator: {task} was given {gpus}, but {_describe_devices()}")


def _describe_devices() -> str:
    """Says what TensorFlow sees in place of GPUs, and what to do."""
    devices = ", ".join(device.name.partition(":")[2] for device in tf.config.list_physical_devices())
    if not tf.test.is_built_with_cuda():
        reason = "is built without CUDA"
        remedy = "build the image with --build-arg ACCELERATOR=gpu, or install tensorflow[and-cuda] in your own"
    else:
        reason = "names the missing library in a warning above"
        remedy = (
            "check that LD_LIBRARY_PATH names the folder of the driver (libcuda.so.1; /usr/local/nvidia/lib64 on Google's "
            "machines), that CUDA's libraries are installed (--build-arg ACCELERATOR=gpu), and that `nvidia-smi` works here"
        )
    return f"TensorFlow sees only {devices}, and {reason}; {remedy}, or write accelerator_type=cpu to train on the CPU"


def _devices(distribution: Distribution) -> list[str]:
    """Returns the names of this process's devices to use, such as `GPU:0`.

    Splits the CPU into logical devices if several are requested.
    """
    kind, count = distribution.accelerator_type, distribution.accelerator_count
    if distribution.mesh:
        count = math.prod(layout_rules.parse_mesh(distribution.mesh))
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "gpu" or (kind == "auto" and gpus):
        if not gpus:
            raise ConfigurationError(f"accelerator_type: GPUs are asked for, but {_describe_devices()}")
        if len(gpus) < count and not distribution.mesh:  # MeshStrategy says what does not fit a mesh
            seen = "GPU:0" if len(gpus) == 1 else f"GPU:0 to GPU:{len(gpus) - 1}"
            raise ConfigurationError(
                f"accelerator_count: {count} GPUs are asked for, but this process sees {seen}; write "
                f"accelerator_count={len(gpus)}"
            )
        used = gpus[: (count or len(gpus)) if distribution.info.all_devices else 1]
        tf.config.set_visible_devices(used, "GPU")
        return [f"GPU:{index}" for index in range(len(used))]
    tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{index}" for index in range(max(count, 1))]


def _default(distribution: Distribution) -> tf.distribute.Strategy:
    _devices(distribution)
    return tf.distribute.get_strategy()


def _mirrored(distribution: Distribution) -> tf.distribute.Strategy:
    ops = {
        "auto": None,
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
    }[distribution.all_reduce]
    return tf.distribute.MirroredStrategy(_devices(distribution), cross_device_ops=ops() if ops else None)


def _multi_worker_mirrored(distribution: Distribution) -> tf.distribute.Strategy:
    devices = _devices(distribution)
    if len(devices) > 1 and devices[0].startswith("CPU"):
        # The strategy uses one CPU device or all visible GPUs of a process, and has no
        # argument to change that.
        raise ConfigurationError(
            f"accelerator_count: multi_worker_mirrored uses one device of a process that has no GPU, but "
            f"accelerator_count is {len(devices)}; write accelerator_count=1 and more workers"
        )
    # Reduction Server is a plugin of NCCL.
    all_reduce = "nccl" if distribution.all_reduce == strategy_info.REDUCTION_SERVER else distribution.all_reduce
    communication = tf.distribute.experimental.CommunicationImplementation(all_reduce.upper())
    options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


class _CentralStorage(tf.distribute.experimental.CentralStorageStrategy):
    """Lets replicas write variables without aggregation: the first one's value counts.

    Keras 2 optimizers keep the value of a learning rate schedule in such a variable,
    and could not train with this strategy otherwise.
    """

    @override
    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        with super().scope(), tf.variable_creator_scope(self._create):
            yield

    @staticmethod
    def _create(next_creator: Callable[..., tf.Variable], **arguments: Any) -> tf.Variable:
        aggregation = arguments.get("aggregation") or tf.VariableAggregation.NONE
        if not arguments.get("trainable", True) and aggregation == tf.VariableAggregation.NONE:
            arguments["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return next_creator(**arguments)


def _parameter_server(distribution: Distribution) -> tf.distribute.Strategy:
    tf.config.set_visible_devices([], "GPU")  # only workers compute; this process coordinates
    partitioner = None
    if distribution.partition_min_bytes:
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            min_shard_bytes=distribution.partition_min_bytes,
            max_shards=strategy_table.num_parameter_servers(distribution),
        )
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec().as_dict()
    # Then TensorFlow waits for those that still do not listen.
    cluster_peers.wait_for([*cluster.get("worker", ()), *cluster.get("ps", ())], timeouts.SERVERS_LISTEN_SECONDS)
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def _tpu(distribution: Distribution) -> tf.distribute.Strategy:
    # The order of calls in https://www.tensorflow.org/guide/tpu#tpu_initialization
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=distribution.tpu)
    if distribution.tpu != "local":  # that of this VM
        tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


_FACTORIES: dict[str, Callable[[Distribution], tf.distribute.Strategy | MeshStrategy]] = {
    "default": _default,
    "one_device": lambda distribution: tf.distribute.OneDeviceStrategy(_devices(distribution)[0]),
    "mirrored": _mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "central_storage": lambda distribution: _CentralStorage(
        compute_devices=_devices(distribution), parameter_device="CPU:0"
    ),
    "parameter_server": _parameter_server,
    "tpu": _tpu,
    "model_parallel": lambda distribution: MeshStrategy(distribution, _devices(distribution)),
}
