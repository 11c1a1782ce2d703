"""Trains with DTensor, on a mesh of devices; see `mesh_strategy`."""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor
from typing_extensions import override

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError, first_line
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import optimizers
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.loop.step_timing import CallTime
from tfx_distribute.trainer_module.strategies import mesh_strategy
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy


class MeshStepRunner(StepRunner):
    """Runs steps on a mesh.

    Computes and applies gradients in two TensorFlow calls: in a single one, DTensor
    trains incorrectly.
    """

    _strategy: MeshStrategy

    def __init__(
        self,
        model_adapter: ModelAdapter,
        strategy: MeshStrategy,
        input_pipeline: InputPipeline,
        options: TrainingOptions,
    ):
        _lay_out_optimizer(model_adapter, strategy)
        super().__init__(model_adapter, strategy, input_pipeline, options)
        strategy.check_rules(model_adapter.model)
        self._gradients_function = tf.function(self.step.dense_gradients)
        self._apply_function = tf.function(self.step.apply)
        self._eval_step_function = tf.function(self.step.evaluate)

    @override
    def train(self, num_steps: int) -> tuple[float, CallTime]:
        begin, waited = time.time(), 0.0
        loss = None
        for step in range(num_steps):
            is_measured = not self._behind_host or step % step_timing.SAMPLE == 0
            if is_measured and loss is not None:
                _local_value(loss).numpy()  # waits for the devices
            before = time.monotonic()
            batch, _ = next(self._training)
            waited += time.monotonic() - before if is_measured else 0.0
            # The loss is that of the global batch.
            loss, gradients = self._gradients_function(self._shard_batch(batch), 1.0)
            self._apply_function(gradients)
        if self._behind_host:
            waited *= step_timing.weight_of_measured(num_steps)
        return float(_local_value(loss)), CallTime(begin, waited)

    @override
    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        for number, batch in enumerate(self._input_pipeline.evaluation_part(0, 1)):
            if callbacks:
                callbacks.on_test_batch_begin(number)
            self._eval_step_function(self._shard_batch(batch))
            if callbacks:
                callbacks.on_test_batch_end(number, as_floats(self.metrics(evaluated=True)))

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        return {name: _local_value(value) for name, value in super().metrics(evaluated).items()}

    @override
    def open(self, first_step: int) -> None:
        self._input_pipeline = self._input_pipeline.of_global_batch(self._strategy.num_replicas_in_sync)
        self._training = iter(self._input_pipeline.train(tf.distribute.InputContext(), first_step))

    def _shard_batch(self, batch: Any) -> Any:
        """Divides a batch along the mesh's `batch` dimension.

        A batch that cannot be divided evenly is copied whole to every device.
        """

        def shard(value: Any) -> tf.Tensor:
            if not isinstance(value, tf.Tensor) or value.dtype == tf.string:
                raise ConfigurationError(
                    "module: DTensor cannot divide features that are text, sparse or ragged, and the model reads one; make "
                    "it numbers in preprocessing_fn, or use another strategy"
                )
            is_even = int(value.shape[0]) % self._strategy.num_replicas_in_sync == 0
            other_axes = [dtensor.UNSHARDED] * (len(value.shape) - 1)
            sharding = [layout_rules.BATCH if is_even else dtensor.UNSHARDED, *other_axes]
            return mesh_strategy.shard(value, dtensor.Layout(sharding, self._strategy.mesh))

        return tf.nest.map_structure(shard, batch, expand_composites=False)


@contextlib.contextmanager
def explaining_unsupported_operations() -> Iterator[None]:
    """Turns DTensor's errors about layouts and operations into ConfigurationErrors."""
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        text = str(error)
        layout = re.search(r"DTensor does not support [^\n]+", text)
        operation = re.search(r"'tf\.(\w+)' op (?:does not implement layout propagation|ComputeLayout\w+ error)", text)
        node = re.search(r"{{node ([^}]+)}}", text)
        is_of_mesh = node or "DTensor" in text or "got a regular tensor" in text
        if not (operation or is_of_mesh) or "IteratorGetNext" in text:  # that reads examples
            raise
        if layout:
            raise ConfigurationError(f"layout_rules: {layout[0].strip()}; write another rule") from error
        if operation:
            message = (
                f"module: DTensor cannot divide the operation {operation[1]}, which the model uses; write the layer that it "
                "comes from"
            )
        else:
            where = f"the operation {node[1]}" if node else "this"
            message = f"module: {where} fails under DTensor: {first_line(error)}; write the layer, loss, metric or callback"
        raise ConfigurationError(f"{message} in other operations, or use another strategy") from error


def _lay_out_optimizer(model_adapter: ModelAdapter, strategy: MeshStrategy) -> None:
    """Makes an optimizer divide its slots as the variables are divided.

    The optimizer did not know the mesh when the user's module created it. Raises
    ConfigurationError if it does not support this, or the module applies gradients
    itself.
    """
    optimizer = model_adapter.optimizer
    optimizer_name = type(optimizer).__name__
    if model_adapter.applies_gradients:
        raise ConfigurationError(
            "module: the model has a train_step of its own, which model_parallel cannot divide into gradients and their "
            "application; return a task with train_step and eval_step, or use another strategy"
        )
    if hasattr(optimizer, "inner_optimizer"):
        raise ConfigurationError(
            "module: model_parallel cannot use a LossScaleOptimizer, because Keras does not scale losses there; leave it "
            "out, or use another strategy"
        )
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise ConfigurationError(
            f"module: model_parallel cannot use the optimizer {optimizer_name}; use one of tf.keras.optimizers, not a "
            "legacy one"
        )
    if len(optimizers.with_inner(optimizer)) > 1:
        raise ConfigurationError(
            f"module: model_parallel cannot use {optimizer_name}, which has another optimizer, because only the variables "
            "of one are divided; use an optimizer that applies gradients itself, or another strategy"
        )
    is_plain_sgd = isinstance(optimizer, tf.keras.optimizers.SGD) and not optimizer.momentum
    if (is_plain_sgd or isinstance(optimizer, tf.keras.optimizers.Ftrl)) and tf.__version__.startswith("2.16."):
        # "Incompatible shapes" in the first step on a divided variable. TensorFlow 2.21
        # trains it.
        raise ConfigurationError(
            f"module: model_parallel cannot use {'SGD without momentum' if is_plain_sgd else optimizer_name} with "
            f"TensorFlow {tf.__version__}; write SGD(..., momentum=0.9), or another optimizer"
        )
    if optimizer.use_ema:
        raise ConfigurationError(
            "module: model_parallel cannot use use_ema=True, because Keras does not update the averages there; leave it "
            "out, or use another strategy"
        )
    optimizer._mesh = strategy.mesh
    optimizer.jit_compile = False
    build, update_step = optimizer.build, optimizer.update_step

    def build_laid_out(variables: Sequence[Any]) -> None:
        # Slots of a variable's shape get its layout from Keras. Rules for the variable
        # do not fit slots of another shape, which have names like its own.
        with strategy.undivided():
            build(variables)

    def update_laid_out(gradient: tf.Tensor, variable: Any) -> None:
        # A gradient has the layout that its computation produced. Optimizers assume
        # that it is the variable's.
        update_step(dtensor.relayout(gradient, variable.layout), variable)

    optimizer.build, optimizer.update_step = build_laid_out, update_laid_out


def _local_value(tensor: tf.Tensor) -> tf.Tensor:
    return dtensor.unpack(tensor)[0] if dtensor.is_dtensor(tensor) else tensor
