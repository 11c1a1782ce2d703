"""Training with DTensor: variables divided over a mesh of devices, so that a model may be larger than one of them.

A mesh has two dimensions: examples are divided along `batch`, variables along `model` as the layout rules say. Every
variable that `build_model` makes becomes a DVariable whose parts go to their devices one by one: no device ever holds a
whole one.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.experimental import dtensor
from typing_extensions import override

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layout_rules
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.training.model_adapters import ModelAdapter, as_floats
from tfx_distribute.trainer_module.training.step_runner import StepRunner


class MeshStepRunner(StepRunner):
    """`StepRunner` on a mesh. Gradients and their application are two TensorFlow calls: in one, DTensor trains wrong."""

    _strategy: MeshStrategy

    def __init__(
        self,
        trainable: ModelAdapter,
        strategy: MeshStrategy,
        feed: InputPipeline,
        schedule: TrainingOptions,
        before_step: Callable[[], None] | None = None,
    ):
        _lay_out_optimizer(trainable, strategy.mesh)
        # In one function with others, DTensor gets the norm of divided gradients wrong; see `_clip_factor`.
        self._global_clipnorm, trainable.optimizer.global_clipnorm = trainable.optimizer.global_clipnorm, None
        super().__init__(trainable, strategy, feed, schedule, before_step)
        strategy.check_rules(trainable.model)
        self._gradients_function = tf.function(self._gradients)
        self._apply_function = tf.function(self._apply)
        self._apply_clipped_function = tf.function(self._apply_clipped)
        self._square_sum_function = tf.function(lambda gradient: tf.reduce_sum(gradient * gradient))
        self._eval_step_function = tf.function(self._eval_step)
        self._before_step_function = tf.function(before_step) if before_step else None

    @override
    def train(self, num_steps: int) -> float:
        for _ in range(num_steps):
            if self._before_step_function is not None:
                self._before_step_function()
            with _unknown_operations_named():
                batch, _ = next(self._training)
                loss, gradients = self._gradients_function(self._spread(batch))
                if self._global_clipnorm:
                    self._apply_clipped_function(gradients, self._clip_factor(gradients))
                else:
                    self._apply_function(gradients)
        return float(_value(loss))

    @override
    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        batches = self._feed.evaluation_part(0, 1, self._feed.options.per_replica_batch_size)
        for number, batch in enumerate(batches):
            if callbacks:
                callbacks.on_test_batch_begin(number)
            self._eval_step_function(self._spread(batch))
            if callbacks:
                callbacks.on_test_batch_end(number, as_floats(self.metrics(evaluated=True)))

    @override
    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        return {name: _value(value) for name, value in super().metrics(evaluated).items()}

    @override
    def open(self, first_step: int) -> None:
        self._feed = self._feed.of_global_batch(self._strategy.num_replicas_in_sync)
        self._training = iter(self._feed.train(tf.distribute.InputContext(), first_step))

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        # A gradient comes out laid out as its computation left it, and optimizers do not look.
        variables = [self._variables[index] for index in self._with_gradient]
        pairs = zip(gradients, variables, strict=True)
        gradients = [dtensor.relayout(gradient, variable.layout) for gradient, variable in pairs]
        super()._apply(gradients)

    def _apply_clipped(self, gradients: list[tf.Tensor], by: tf.Tensor) -> None:
        self._apply([gradient * by for gradient in gradients])

    def _clip_factor(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        """What gradients are multiplied by so that their norm is at most the one that is asked for."""
        squares = [float(_value(self._square_sum_function(gradient))) for gradient in gradients]
        norm = math.sqrt(sum(squares))
        return tf.constant(self._global_clipnorm / max(norm, self._global_clipnorm))

    def _gradients(
        self, batch: Any, share: tf.Tensor | float = 1.0, number: tf.Tensor | int = 0
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = super()._gradients(batch, share, number)  # the loss is that of the global batch
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]  # an embedding's is a list of rows

    def _spread(self, batch: Any) -> Any:
        """Divides a batch along the mesh's batch; whole on every device where it cannot be divided evenly."""

        def spread(value: Any) -> tf.Tensor:
            if not isinstance(value, tf.Tensor) or value.dtype == tf.string:
                raise ConfigurationError(
                    "module: DTensor cannot divide features that are text, sparse or ragged, and the model reads one; make "
                    "it numbers in preprocessing_fn, or use another strategy"
                )
            even = int(value.shape[0]) % self._strategy.num_replicas_in_sync == 0
            rest = [dtensor.UNSHARDED] * (len(value.shape) - 1)
            to = [layout_rules.BATCH if even else dtensor.UNSHARDED, *rest]
            return self._strategy.shard_value(value, dtensor.Layout(to, self._strategy.mesh))

        return tf.nest.map_structure(spread, batch, expand_composites=False)


@contextlib.contextmanager
def _unknown_operations_named() -> Iterator[None]:
    try:
        yield
    except tf.errors.UnknownError as error:
        refused = re.search(r"DTensor does not support [^\n]+", str(error))
        if refused:
            raise ConfigurationError(f"layout_rules: {refused[0].strip()}; write another rule") from error
        found = re.search(r"'tf\.(\w+)' op (?:does not implement layout propagation|ComputeLayout\w+ error)", str(error))
        if not found:
            raise
        raise ConfigurationError(
            f"module: DTensor cannot divide the operation {found[1]}, which the model uses; write the layer that it comes "
            "from in other operations, or use another strategy"
        ) from error


def _lay_out_optimizer(trainable: ModelAdapter, mesh: dtensor.Mesh) -> None:
    """Has an optimizer, which knew no mesh when the module made it, keep its slots as the variables are laid out.

    Raises:
      ConfigurationError: The optimizer cannot, or the module applies gradients by itself.
    """
    optimizer = trainable.optimizer
    kind = type(optimizer).__name__
    if trainable.steps_alone:
        raise ConfigurationError(
            "module: the model has a train_step of its own, which model_parallel cannot divide into gradients and their "
            "application; return a task with train_step and eval_step, or use another strategy"
        )
    if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
        raise ConfigurationError(
            f"module: model_parallel cannot use the optimizer {kind}; use one of tf.keras.optimizers, not a legacy one"
        )
    plain = isinstance(optimizer, tf.keras.optimizers.SGD) and not optimizer.momentum
    if plain or isinstance(optimizer, tf.keras.optimizers.Ftrl):
        # Seen on TensorFlow 2.16: "Incompatible shapes" in the first step on a divided variable.
        raise ConfigurationError(
            f"module: model_parallel cannot use {'SGD without momentum' if plain else kind}; write SGD(..., momentum=0.9), "
            "or another optimizer"
        )
    optimizer._mesh = mesh
    optimizer.jit_compile = False


def _value(tensor: tf.Tensor) -> tf.Tensor:
    """A scalar as this process sees it."""
    return dtensor.unpack(tensor)[0] if dtensor.is_dtensor(tensor) else tensor
