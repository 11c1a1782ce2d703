"""Lists the strategies and their properties. Imports no TensorFlow.

A new strategy is built in `trainer_module.strategies.factory` and gets a row here.
"""

from dataclasses import dataclass

from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class StrategyInfo:
    """One row of the table of strategies.

    Every strategy supports both ways of training, a compiled Keras model and a task
    with its own steps, because they share a loop. Every strategy also supports any
    number of shards: if they do not divide evenly among the processes, these share them
    by records.

    Attributes:
      name: Value of the pipeline parameter `strategy`.
      summary: One line for help texts and documents.
      multi_worker: True if it can span several training processes.
      parameter_servers: True if it needs parameter servers and a coordinator, and
        trains asynchronously.
      all_devices: True if it uses all devices of a process, False if only one.
      all_reduce: Values of the pipeline parameter `all_reduce` that it supports,
        besides `auto`.
      accelerators: Values of `accelerator_type` that it supports.
      not_keras_3: Why it cannot train a Keras 3 model; empty if it can.
      not_jit_compile: Why XLA cannot compile its steps; empty if it can.
      not_accumulated: Why it cannot sum the gradients of several batches; empty if it
        can.
      not_float16: Why it cannot train in `mixed_float16`; empty if it can.
      fixed_batches: Why all its batches must have the same size; empty if not.
      run_fn: True if a module with its own `run_fn` can use it.
    """

    name: str
    summary: str
    multi_worker: bool = False
    parameter_servers: bool = False
    all_devices: bool = True
    all_reduce: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ("auto", "cpu", "gpu")
    not_keras_3: str = ""
    not_jit_compile: str = ""
    not_accumulated: str = ""
    not_float16: str = ""
    fixed_batches: str = ""
    run_fn: bool = True


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
            multi_worker=True,
            all_reduce=("ring", "nccl", REDUCTION_SERVER),
        ),
        StrategyInfo(
            "parameter_server",
            "tf.distribute.ParameterServerStrategy: asynchronous workers, variables on parameter servers, a coordinator",
            multi_worker=True,
            parameter_servers=True,
            all_devices=False,
            not_keras_3="its optimizers lose steps on parameter servers",
            not_jit_compile="XLA cannot read variables of another process",
            not_accumulated="a worker applies the gradients of each batch by itself",
            not_float16="Keras does not scale losses there",
        ),
        StrategyInfo(
            "central_storage",
            "tf.distribute.experimental.CentralStorageStrategy: one process, variables on its CPU, a replica on each device",
            not_keras_3="its metrics are silently wrong there",
            not_jit_compile="XLA cannot read variables of another device",
            not_float16="Keras does not scale losses there",
        ),
        StrategyInfo(
            "tpu",
            "tf.distribute.TPUStrategy: one process, all cores of a TPU",
            accelerators=("auto",),
            not_keras_3="it has not been tried there",
            not_float16="a TPU computes in bfloat16",
            fixed_batches="a TPU's program is compiled for one",
        ),
        StrategyInfo(
            "model_parallel",
            "DTensor: one process, the model split over a mesh of devices",
            not_keras_3="Keras 3 does not support DTensor",
            not_jit_compile="DTensor places each operation by itself",
            not_accumulated="DTensor's loops do not carry gradients",
            not_float16="Keras does not scale losses there",
            fixed_batches="a batch is divided evenly along the mesh",
            run_fn=False,
        ),
    )
}

AUTO = "auto"  # chosen from the workers and devices; see `strategy_table.resolve`
NAMES = (*STRATEGIES, AUTO)


def strategy_named(name: str) -> StrategyInfo:
    """Returns the row of the strategy called `name`.

    Raises:
      ConfigurationError: There is no strategy of that name. `auto` is not one; see
        `strategy_table.resolve`.
    """
    row = STRATEGIES.get(name)
    if row is None:
        raise ConfigurationError(f"strategy: there is no strategy {name!r}; choose one of {', '.join(NAMES)}")
    return row
