"""Runs many training steps in one TensorFlow call, for strategies that train in step.

After each batch, `fit` returns to Python and reads every metric over all replicas.
Here, the loop over steps is part of the graph, and metrics are read only when needed.
`coordinator_steps` does the same for parameter servers, and `mesh_steps` for DTensor.
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

# Keeps iterators alive: closing those of several devices takes seconds, and the process
# ends soon anyway.
_open_iterators: list[Any] = []


class StepRunner:
    """Runs the training and evaluation steps of a model under one strategy.

    The step functions are traced once for any number of steps. Create it in the
    strategy's scope.

        step_runner = StepRunner(model_adapter, strategy, input_pipeline, options)
        step_runner.open(first_step=0)
        loss = step_runner.train(num_steps=100)
        metrics = step_runner.metrics()

    Args:
      model_adapter: The model, created in the strategy's scope.
      strategy: The strategy.
      input_pipeline: The datasets.
      options: The options of the training.
      before_step: A function to call before each training step, once for all replicas,
        in the graph.

    Raises:
      ConfigurationError: The model has no trainable variables, or its own train_step
        does not work with the options.
    """

    def __init__(
        self,
        model_adapter: ModelAdapter,
        strategy: tf.distribute.Strategy,
        input_pipeline: InputPipeline,
        options: TrainingOptions,
        before_step: Callable[[], None] | None = None,
    ):
        self._model_adapter = model_adapter
        self._strategy = strategy
        self._before_step = before_step
        self._batches_per_step, self._seed = options.gradient_accumulation_steps, options.seed
        model_adapter.prepare(input_pipeline.zeros())
        self._variables = model_adapter.model.trainable_variables
        if not self._variables:
            setting = "freeze" if options.freeze else "module"
            raise ConfigurationError(f"{setting}: the model has no trainable variables")
        # Indices of the variables that the loss depends on; known once a step is
        # traced.
        self._with_gradient: list[int] = []
        self._compute_gradients = self._gradients
        # Keras 3 sets the model's jit_compile itself if it sees a GPU, so it is ignored
        # there.
        if options.jit_compile or (not is_keras_3() and model_adapter.model.jit_compile):
            # The update of the weights is left out: it communicates between replicas,
            # which a compiled function cannot do.
            self._compute_gradients = tf.function(self._gradients, jit_compile=True, reduce_retracing=True)
        if model_adapter.applies_gradients and (self._batches_per_step > 1 or options.global_clipnorm):
            raise ConfigurationError(
                "module: the model has a train_step of its own, which applies gradients by itself; write "
                "gradient_accumulation_steps=1 and global_clipnorm=0, or return a task with train_step and eval_step"
            )
        if not model_adapter.applies_gradients:
            if hasattr(model_adapter.optimizer, "build"):
                model_adapter.optimizer.build(self._variables)
            gradients_lib.leave_sum_to_apply(model_adapter.optimizer)
        eagerly = model_adapter.model.run_eagerly
        self._train_function = self._train if eagerly else tf.function(self._train)
        self._evaluate_function = self._evaluate if eagerly else tf.function(self._evaluate)
        # Two functions, since training and evaluation may have different metrics.
        self._metrics_function = tf.function(lambda: model_adapter.metrics())
        self._eval_metrics_function = tf.function(lambda: model_adapter.metrics(evaluated=True))
        self._input_pipeline = input_pipeline

    def open(self, first_step: int) -> None:
        """Opens the datasets. Call this before `train` and `evaluate`.

        Args:
          first_step: Training steps that earlier tries have done. Reading starts with
            the examples of the next one.
        """
        self._training = iter(
            self._strategy.distribute_datasets_from_function(lambda context: self._input_pipeline.train(context, first_step))
        )
        self._evaluation = None
        if self._input_pipeline.has_evaluation:
            num_replicas = self._strategy.num_replicas_in_sync
            self._eval_steps = self._input_pipeline.eval_steps(num_replicas)
            self._evaluation = iter(
                self._strategy.distribute_datasets_from_function(
                    lambda context: self._input_pipeline.evaluation(context, num_replicas)
                )
            )
        _open_iterators.extend((self._training, self._evaluation))

    def train(self, num_steps: int) -> float:
        """Runs training steps.

        Args:
          num_steps: How many.

        Returns:
          The mean loss of the last step on this process's replicas.
        """
        loss = float(self._train_function(self._training, tf.constant(num_steps)))
        train_counter = getattr(self._model_adapter.model, "_train_counter", None)
        if train_counter is not None:  # Keras 2: its TensorBoard callback reads the step from here
            train_counter.assign_add(num_steps)
        return loss

    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        """Evaluates on the whole eval split; updates the metrics.

        Args:
          callbacks: Callbacks with hooks for each batch of an evaluation; None
            evaluates all batches in one TensorFlow call.
        """
        if callbacks is None:
            self._evaluate_function(self._evaluation, tf.constant(self._eval_steps))
            return
        for batch in range(self._eval_steps):
            callbacks.on_test_batch_begin(batch)
            self._evaluate_function(self._evaluation, tf.constant(1))
            callbacks.on_test_batch_end(batch, as_floats(self.metrics(evaluated=True)))

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the values of the metrics over all replicas, by name.

        All processes of the cluster have to call this together.

        Args:
          evaluated: True for the metrics of an evaluation, False for those of training
            steps.
        """
        return self._eval_metrics_function() if evaluated else self._metrics_function()

    def agree(self, *values: float) -> list[float]:
        """Returns the means of numbers over all processes.

        Use it wherever all processes have to make the same decision, because the result
        is the same in each. TensorFlow identifies a collective operation by its place
        in the graph, including the round of a loop: processes that divided the same
        steps into calls of different length would wait for each other forever.

            any_stops = step_runner.agree(stops)[0] > 0

        Args:
          values: Numbers or booleans of this process.
        """
        if not isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return list(values)
        return [float(mean) for mean in self._mean(tf.constant(values, tf.float64))]

    @tf.function
    def _mean(self, values: tf.Tensor) -> tf.Tensor:
        per_replica = self._strategy.run(lambda value: value, args=(values,))
        return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, per_replica, axis=None)

    def _train(self, iterator: Iterator, num_steps: tf.Tensor) -> tf.Tensor:
        losses = self._zero_losses()
        for _ in tf.range(num_steps):
            if self._before_step is not None:
                self._before_step()
            if self._batches_per_step == 1:
                losses = self._strategy.run(self._whole_step, args=next(iterator))
            else:
                losses, gradients = self._strategy.run(self._first_gradients, args=(*next(iterator), tf.constant(0)))
                for number in tf.range(1, self._batches_per_step):
                    losses, gradients = self._strategy.run(self._add_gradients, args=(*next(iterator), number, gradients))
                self._strategy.run(self._apply, args=(gradients,))
        return tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))

    def _evaluate(self, iterator: Iterator, num_steps: tf.Tensor) -> None:
        for _ in tf.range(num_steps):
            self._strategy.run(self._eval_step, args=(next(iterator),))

    def _zero_losses(self) -> Any:
        return self._strategy.run(lambda: tf.constant(0.0))

    def _eval_step(self, batch: Any) -> None:
        self._model_adapter.eval_step(*batch)

    def _whole_step(self, batch: Any, share: tf.Tensor) -> tf.Tensor:
        """Runs one replica's training step without accumulation; returns the loss."""
        if self._model_adapter.applies_gradients:
            with noise.seeded_by_step(self._seed, self._model_adapter.optimizer.iterations):
                return self._model_adapter.train_step(*batch)
        loss, gradients = self._compute_gradients(batch, share, tf.constant(0))
        self._apply(gradients)
        return loss

    def _gradients(self, batch: Any, share: tf.Tensor | float, number: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Computes the loss of a batch, and its gradients, weighted by `share`.

        Args:
          batch: Features, label and perhaps weights of one replica's batch.
          share: The part of the step's examples that the batch has.
          number: Number of the replica's batch within the step, from 0.

        Returns:
          The loss, and the gradients of the variables that it depends on.
        """

        def compute_loss() -> tf.Tensor:
            step = self._model_adapter.optimizer.iterations
            with normalisation.replica_share(share), noise.seeded_by_step(self._seed, step, number):
                return self._model_adapter.train_step(*batch)

        loss, gradients = gradients_lib.compute(self._model_adapter.optimizer, compute_loss, self._variables, share)
        self._check_gradients(gradients)
        return loss, [gradients[index] for index in self._with_gradient]

    def _check_gradients(self, gradients: list[Any]) -> None:
        """Notes which variables have a gradient, and warns of those that have none.

        Raises:
          ConfigurationError: No variable has a gradient, or the step created variables.
        """
        if len(self._model_adapter.model.trainable_variables) != len(self._variables):
            raise ConfigurationError(
                "module: train_step made variables that it would not train; make all of the model's in build_model"
            )
        self._with_gradient = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if not self._with_gradient:
            raise ConfigurationError(
                "module: the loss does not depend on any trainable variable, or not in a way that can be differentiated; "
                "use operations that have a gradient (tf.round, tf.argmax and casts to integers have none)"
            )
        untrained = [self._variables[index] for index, gradient in enumerate(gradients) if gradient is None]
        if untrained:
            names = ", ".join(getattr(variable, "path", variable.name) for variable in untrained)
            warnings.warn(f"module: the loss does not depend on {names}, which will not be trained", stacklevel=1)

    def _first_gradients(self, batch: Any, share: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._compute_gradients(batch, share, number)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _add_gradients(
        self, batch: Any, share: tf.Tensor, number: tf.Tensor, previous: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._first_gradients(batch, share, number)
        return loss, [old + new for old, new in zip(previous, gradients, strict=True)]

    def _apply(self, gradients: list[tf.Tensor]) -> None:
        variables = [self._variables[index] for index in self._with_gradient]
        gradients_lib.apply(self._model_adapter.optimizer, gradients, variables)
