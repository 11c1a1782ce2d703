"""Lists the strategies and their properties.

A new strategy is built in `trainer_module.strategies.factory` and gets a row here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class StrategyInfo:
    """One row of the table of strategies.

    Every strategy supports both ways of training, a compiled Keras model and a task
    with its own steps, because they share a loop. Every strategy also supports any
    number of shards: see `shard_plan`.

    Attributes:
      name: Value of the pipeline parameter `strategy`.
      summary: One line for help texts and documents.
      takes: Parameters that only some strategies take: see `strategy_table`.
      refuses: Training option that it cannot train with -> why; of `precision`, that is
        `mixed_float16`.
      all_devices: True if it uses all devices of a process, False if only one.
      all_reduce: Values of the pipeline parameter `all_reduce` that it supports,
        besides `auto`.
      accelerators: Values of `accelerator_type` that it supports.
      fixed_batches: Why all its batches must have the same size; empty if not.
      run_fn: True if a module with its own `run_fn` can use it.
    """

    name: str
    summary: str
    takes: tuple[str, ...] = ()
    refuses: Mapping[str, str] = field(default_factory=dict)
    all_devices: bool = True
    all_reduce: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ("auto", "cpu", "gpu")
    fixed_batches: str = ""
    run_fn: bool = True

    @property
    def multi_worker(self) -> bool:
        """True if it can span several training processes."""
        return "num_workers" in self.takes

    @property
    def parameter_servers(self) -> bool:
        """True if it has parameter servers and a coordinator; it is asynchronous."""
        return "num_parameter_servers" in self.takes


# NCCL with Vertex AI's machines that do nothing but sum.
REDUCTION_SERVER = "reduction_server"

STRATEGIES: dict[str, StrategyInfo] = {
    row.name: row
    for row in (
        StrategyInfo("default", "no distribution: one process, one device", all_devices=False),
        StrategyInfo(
            "one_device",
            "tf.distribute.OneDeviceStrategy: one process, one device",
            all_devices=False,
        ),
        StrategyInfo(
            "mirrored",
            "tf.distribute.MirroredStrategy: one process, a replica on each of its devices",
            all_reduce=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        ),
        StrategyInfo(
            "multi_worker_mirrored",
            "tf.distribute.MultiWorkerMirroredStrategy: several processes in step, a replica on each of their devices",
            takes=("num_workers",),
            all_reduce=("ring", "nccl", REDUCTION_SERVER),
        ),
        StrategyInfo(
            "parameter_server",
            "tf.distribute.ParameterServerStrategy: asynchronous workers, variables on parameter servers, a coordinator",
            takes=("num_workers", "num_parameter_servers", "partition_min_bytes"),
            refuses={
                "keras_version": "its optimizers lose steps on parameter servers",
                "jit_compile": "XLA cannot read variables of another process",
                "gradient_accumulation_steps": "a worker applies the gradients of each batch by itself",
                "precision": "Keras does not scale losses there",
            },
            all_devices=False,
        ),
        StrategyInfo(
            "central_storage",
            "tf.distribute.experimental.CentralStorageStrategy: one process, variables on its CPU, a replica on each device",
            refuses={
                "keras_version": "its metrics are silently wrong there",
                "jit_compile": "XLA cannot read variables of another device",
                "precision": "Keras does not scale losses there",
            },
        ),
        StrategyInfo(
            "tpu",
            "tf.distribute.TPUStrategy: one process, all cores of a TPU",
            takes=("tpu",),
            refuses={"keras_version": "it has not been tried there", "precision": "a TPU computes in bfloat16"},
            accelerators=("auto",),
            fixed_batches="a TPU's program is compiled for one",
        ),
        StrategyInfo(
            "model_parallel",
            "DTensor: one process, the model split over a mesh of devices",
            takes=("mesh", "layout_rules"),
            refuses={
                "keras_version": "Keras 3 does not support DTensor",
                "jit_compile": "DTensor places each operation by itself",
                "gradient_accumulation_steps": "DTensor's loops do not carry gradients",
                "precision": "Keras does not scale losses there",
            },
            fixed_batches="a batch is divided evenly along the mesh",
            run_fn=False,
        ),
    )
}

AUTO = "auto"  # chosen from the workers and devices; see `strategy_table.resolve`
NAMES = (*STRATEGIES, AUTO)


def strategy_named(name: str) -> StrategyInfo:
    """Returns the row of the strategy called `name`, which is not `auto`."""
    row = STRATEGIES.get(name)
    if row is None:
        raise ConfigurationError(f"strategy: there is no strategy {name!r}; choose one of {', '.join(NAMES)}")
    return row
