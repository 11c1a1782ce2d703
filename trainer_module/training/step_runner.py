"""Many training steps in one TensorFlow call, for strategies whose replicas train in step.

`fit` goes back to Python after each batch and reads every metric over all replicas each time. Here the loop over steps is
part of the graph, and metrics are read when somebody wants them. `coordinator` and `mesh` have the same for parameter
servers and for DTensor.
"""

import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.training import gradients as gradients_lib
from tfx_distribute.trainer_module.training import noise, normalisation
from tfx_distribute.trainer_module.training.model_adapters import ModelAdapter, as_floats, is_keras_3

Iterator = Any  # tf.data's or tf.distribute's

# Datasets that are being iterated: closing those of several devices takes seconds, and the process ends soon anyway.
_open_iterators: list[Any] = []


class StepRunner:
    """The step functions of what is trained, under one strategy. Traced once, whatever the number of steps.

    To be made in the strategy's scope.

    Args:
      trainable: What is trained, made in the strategy's scope.
      strategy: The strategy.
      feed: The datasets.
      schedule: How training goes.
      before_step: Done before each training step, once for all replicas, in the graph.
    """

    def __init__(
        self,
        trainable: ModelAdapter,
        strategy: tf.distribute.Strategy,
        feed: InputPipeline,
        schedule: TrainingOptions,
        before_step: Callable[[], None] | None = None,
    ):
        self._trainable = trainable
        self._strategy = strategy
        self._before_step = before_step
        self._accumulated, self._seed = schedule.gradient_accumulation_steps, schedule.seed
        trainable.prepare(feed.zeros())
        self._variables = trainable.model.trainable_variables
        if not self._variables:
            raise ConfigurationError("module: the model has no trainable variables")
        self._with_gradient: list[int] = []  # which of the variables the loss depends on; known once traced
        self._compute = self._gradients
        # Keras 3 says yes by itself where it sees a GPU.
        if schedule.jit_compile or (not is_keras_3() and trainable.model.jit_compile):
            # Without the update of the weights: replicas meet there, which no compiled function can do.
            self._compute = tf.function(self._gradients, jit_compile=True, reduce_retracing=True)
        if trainable.steps_alone and (self._accumulated > 1 or schedule.global_clipnorm):
            raise ConfigurationError(
                "module: the model has a train_step of its own, which applies gradients by itself; write "
                "gradient_accumulation_steps=1 and global_clipnorm=0, or return a task with train_step and eval_step"
            )
        if not trainable.steps_alone and hasattr(trainable.optimizer, "build"):
            trainable.optimizer.build(self._variables)
        if not trainable.steps_alone:
            gradients_lib.leave_sum_to_apply(trainable.optimizer)
        eagerly = trainable.model.run_eagerly
        self._train_function = self._train if eagerly else tf.function(self._train)
        self._evaluate_function = self._evaluate if eagerly else tf.function(self._evaluate)
        # Two, since what there is to tell may differ.
        self._metrics_function = tf.function(lambda: trainable.metrics())
        self._eval_metrics_function = tf.function(lambda: trainable.metrics(evaluated=True))
        self._feed = feed

    def open(self, first_step: int) -> None:
        """Begins to read, at the examples of a training step; once all that was saved is restored."""
        self._training = iter(
            self._strategy.distribute_datasets_from_function(lambda context: self._feed.train(context, first_step))
        )
        self._evaluation = None
        if self._feed.has_evaluation:
            replicas = self._strategy.num_replicas_in_sync
            self._eval_steps = self._feed.eval_steps(replicas)
            self._evaluation = iter(
                self._strategy.distribute_datasets_from_function(lambda context: self._feed.evaluation(context, replicas))
            )
        _open_iterators.extend((self._training, self._evaluation))

    def train(self, num_steps: int) -> float:
        """Takes `num_steps` training steps; returns the last one's mean loss on this process's replicas."""
        loss = float(self._train_function(self._training, tf.constant(num_steps)))
        counter = getattr(self._trainable.model, "_train_counter", None)
        if counter is not None:  # Keras 2: its TensorBoard callback reads the step from here
            counter.assign_add(num_steps)
        return loss

    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        """Evaluates on the whole eval split, into the metrics.

        Args:
          callbacks: Callbacks with hooks for each batch of an evaluation; None takes all batches in one TensorFlow call.
        """
        if callbacks is None:
            self._evaluate_function(self._evaluation, tf.constant(self._eval_steps))
            return
        for batch in range(self._eval_steps):
            callbacks.on_test_batch_begin(batch)
            self._evaluate_function(self._evaluation, tf.constant(1))
            callbacks.on_test_batch_end(batch, as_floats(self.metrics(evaluated=True)))

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """The values of the metrics over all replicas. Every process of the cluster has to ask.

        Args:
          evaluated: Whether they are those of an evaluation, or of training steps.
        """
        return self._eval_metrics_function() if evaluated else self._metrics_function()

    def agree(self, *values: float) -> list[float]:
        """The means of numbers over all processes, the same on each: for what they have to do alike.

        Collective operations of a graph are known by their place in it, the round of a loop included. Processes that
        divided the same steps into calls of different length would wait for each other without end.
        """
        if not isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return list(values)
        return [float(mean) for mean in self._mean(tf.constant(values, tf.float64))]

    @tf.function
    def _mean(self, values: tf.Tensor) -> tf.Tensor:
        here = self._strategy.run(lambda own: own, args=(values,))
        return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, here, axis=None)

    def _train(self, iterator: Iterator, num_steps: tf.Tensor) -> tf.Tensor:
        losses = self._zero_losses()
        for _ in tf.range(num_steps):
            if self._before_step is not None:
                self._before_step()
            if self._accumulated == 1:
                losses = self._strategy.run(self._whole_step, args=next(iterator))
            else:
                losses, gradients = self._strategy.run(self._first_gradients, args=(*next(iterator), tf.constant(0)))
                for number in tf.range(1, self._accumulated):
                    losses, gradients = self._strategy.run(self._more_gradients, args=(*next(iterator), number, gradients))
                self._strategy.run(self._apply, args=(gradients,))
        return tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))

    def _evaluate(self, iterator: Iterator, num_steps: tf.Tensor) -> None:
        for _ in tf.range(num_steps):
            self._strategy.run(self._eval_step, args=(next(iterator),))

    def _zero_losses(self) -> Any:
        return self._strategy.run(lambda: tf.constant(0.0))

    def _eval_step(self, batch: Any) -> None:
        self._trainable.eval_step(*batch)

    def _whole_step(self, batch: Any, share: tf.Tensor) -> tf.Tensor:
        """One training step of one replica."""
        if self._trainable.steps_alone:
            with noise.of_step(self._seed, self._trainable.optimizer.iterations):
                return self._trainable.train_step(*batch)
        loss, gradients = self._compute(batch, share, tf.constant(0))
        self._apply(gradients)
        return loss

    def _gradients(self, batch: Any, share: tf.Tensor | float, number: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a batch, and its share of the step's gradients, of those variables that it depends on."""

        def batch_loss() -> tf.Tensor:
            step = self._trainable.optimizer.iterations
            with normalisation.share_of_step(share), noise.of_step(self._seed, step, number):
                return self._trainable.train_step(*batch)

        loss, gradients = gradients_lib.gradients(self._trainable.optimizer, batch_loss, self._variables, share)
        if len(self._trainable.model.trainable_variables) != len(self._variables):
            raise ConfigurationError(
                "module: train_step made variables that it would not train; make all of the model's in build_model"
            )
        self._with_gradient = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if not self._with_gradient:
            raise ConfigurationError(
                "module: the loss does not depend on any trainable variable, or not in a way that can be differentiated; "
                "use operations that have a gradient (tf.round, tf.argmax and casts to integers have none)"
            )
        without = [self._variables[index] for index, gradient in enumerate(gradients) if gradient is None]
        if without:
            names = ", ".join(getattr(variable, "path", variable.name) for variable in without)
            warnings.warn(f"module: the loss does not depend on {names}, which will not be trained", stacklevel=1)
        return loss, [gradients[index] for index in self._with_gradient]

    def _first_gradients(self, batch: Any, share: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._compute(batch, share, number)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _more_gradients(
        self, batch: Any, share: tf.Tensor, number: tf.Tensor, before: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._first_gradients(batch, share, number)
        return loss, [old + new for old, new in zip(before, gradients, strict=True)]

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        variables = [self._variables[index] for index in self._with_gradient]
        gradients_lib.apply(self._trainable.optimizer, gradients, variables)
