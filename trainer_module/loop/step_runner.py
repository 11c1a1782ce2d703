"""Runs many training steps in one TensorFlow call, for strategies that train in step.

After each batch, `fit` returns to Python and reads every metric over all replicas.
Here, the loop over steps is part of the graph, and metrics are read only when needed.
`coordinator_steps` does the same for parameter servers, and `mesh_steps` for DTensor.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras import keras_models, loss_reduction
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.loop import gradients as gradients_lib
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.step_timing import CallTime
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy

Iterator = Any  # tf.data's or tf.distribute's
# By the index of their variable; a variable that the loss does not depend on has none.
Gradients: TypeAlias = dict[int, Any]

# Keeps iterators alive: closing those of several devices takes seconds, and the process
# ends soon anyway.
_open_iterators: list[Any] = []


class StepRunner:
    """Runs the training and evaluation steps of a model under one strategy.

    The step functions are traced once for any number of steps. Create it in the
    strategy's scope.

    Attributes:
      call_seconds: Target duration of one call of `train`, so that progress can be
        shown about as often.
      step: What each replica does.
    """

    call_seconds = 0.5

    def __init__(
        self,
        model_adapter: ModelAdapter,
        strategy: tf.distribute.Strategy,
        input_pipeline: InputPipeline,
        options: TrainingOptions,
    ):
        self.step = ReplicaStep(model_adapter, strategy, options, input_pipeline.zeros())
        self._model_adapter = model_adapter
        self._strategy = strategy
        self._input_pipeline = input_pipeline
        self._options = options
        self._behind_host = step_timing.computes_behind_host()
        self._is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        # Traced twice, since training and evaluation may have different metrics.
        self._metrics_function = tf.function(model_adapter.metrics)

    def open(self, first_step: int) -> None:
        """Opens the datasets. Call this before `train` and `evaluate`.

        Reading starts after the examples of the `first_step` steps of earlier tries.
        """
        eagerly = self._model_adapter.model.run_eagerly  # here, since other runners have functions of their own
        self._train_function = self._train_on_all if eagerly else tf.function(self._train_on_all)
        self._evaluate_function = self._evaluate if eagerly else tf.function(self._evaluate)
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

    def train(self, num_steps: int) -> tuple[Any, CallTime]:
        """Runs training steps; returns the loss of the last one, and the call's time.

        The loss is the mean over this process's replicas, a number or a scalar tensor
        that a device may still compute.
        """
        loss, times = self._train_function(tf.constant(num_steps))
        train_counter = getattr(self._model_adapter.model, "_train_counter", None)
        if train_counter is not None:  # Keras 2: its TensorBoard callback reads the step from here
            train_counter.assign_add(num_steps, read_value=False)
        begin, waited, peers = map(float, times.numpy())
        return loss, CallTime(begin, waited, peers if self.step.measures_peers else None)

    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        """Evaluates on the whole eval split; updates the metrics.

        `callbacks` have hooks for the batches of an evaluation. Without them, and
        without `steps_per_execution`, all batches are one TensorFlow call.
        """
        per_call = self._options.steps_per_execution or (1 if callbacks else self._eval_steps)
        for first in range(0, self._eval_steps, per_call):
            count = min(per_call, self._eval_steps - first)
            if callbacks:
                callbacks.on_test_batch_begin(first)
            self._evaluate_function(self._evaluation, tf.constant(count))
            if callbacks:
                callbacks.on_test_batch_end(first + count - 1, as_floats(self.metrics(evaluated=True)))

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the metrics of training, or of an evaluation, over all replicas.

        All processes of the cluster have to call this together.
        """
        return self._metrics_function(evaluated)

    def _train_on_all(self, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # An iterator in the arguments would take a fifth of the time of a short call.
        return self._train(self._training, num_steps)

    def _train(self, iterator: Iterator, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs training steps.

        Returns the loss of the last one, and a vector: the time at which the first one
        began, the seconds for which steps waited for batches, and those for which they
        waited for peers.
        """
        begin = tf.timestamp()
        losses, seconds = self._strategy.run(lambda: tf.constant(0.0)), tf.zeros([2], tf.float64)
        if self._is_tpu or not self._behind_host:
            for _ in tf.range(num_steps):
                losses, times = self._take_step(iterator)
                seconds += times
        else:
            # A condition in each step would take longer than the rest of a small one.
            # Of the variables of a loop, TensorFlow keeps only int32 in the host's
            # memory: for others, the host would wait for the device in each round.
            microseconds = tf.zeros([2], tf.int32)
            for first in tf.range(0, num_steps, step_timing.SAMPLE):
                measured = tf.zeros([2], tf.int32)
                idle = step_timing.moment_after_device(self._strategy.experimental_local_results(losses))
                with tf.control_dependencies([idle]):
                    for step in tf.range(tf.minimum(step_timing.SAMPLE, num_steps - first)):
                        losses, times = self._take_step(iterator)
                        measured = step_timing.on_host(tf.where, step == 0, step_timing.to_microseconds(times), measured)
                microseconds = step_timing.on_host(tf.add, microseconds, measured)
            seconds = step_timing.estimate(microseconds, num_steps)
        loss = tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))
        return loss, step_timing.on_host(tf.concat, [[begin], seconds], 0)

    def _take_step(self, iterator: Iterator) -> tuple[Any, tf.Tensor]:
        """Runs a step; returns the replicas' losses and the seconds of its waits."""
        batch, waited = self._next(iterator)
        if self._options.gradient_accumulation_steps == 1:
            losses, summed = self._run(self.step.train, *batch)
        else:
            losses, gradients = self._run(self.step.dense_gradients, *batch)
            for _ in tf.range(1, self._options.gradient_accumulation_steps):
                batch, more = self._next(iterator)
                waited = step_timing.on_host(tf.add, waited, more)
                losses, gradients = self._run(self.step.add_gradients, *batch, gradients)
            summed = self._run(self.step.apply, gradients)
        return losses, self._times_of_step(waited, summed)

    def _run(self, step: Callable[..., Any], *args: Any) -> Any:
        """Runs a function on each replica, outside of the name scopes of loops.

        The tags of `tf.summary` begin with the name scope.
        """
        with tf.name_scope("/") if tf.get_current_name_scope() else contextlib.nullcontext():
            return self._strategy.run(step, args=args)

    @tf.autograph.experimental.do_not_convert
    def _next(self, iterator: Iterator) -> tuple[Any, tf.Tensor]:
        """Takes the next batch; returns it and the seconds that this took."""
        if self._is_tpu:
            return next(iterator), tf.zeros([], tf.float64)
        before = tf.timestamp()
        with tf.control_dependencies([before]):
            batch = next(iterator)
        with tf.device("CPU:0"):
            return batch, step_timing.moment(batch) - before

    @tf.autograph.experimental.do_not_convert
    def _times_of_step(self, waited: tf.Tensor, summed: Any) -> tf.Tensor:
        """Returns the seconds for which a step waited for batches and for peers."""
        with tf.device("CPU:0"):  # the host would wait for the device to add numbers there
            measures = self.step.measures_peers
            peers = self._strategy.experimental_local_results(summed)[0] if measures else tf.zeros_like(waited)
            return tf.stack([waited, peers])

    def _evaluate(self, iterator: Iterator, num_steps: tf.Tensor) -> None:
        for _ in tf.range(num_steps):
            self._run(self.step.evaluate, next(iterator))


class ReplicaStep:
    """Computes one replica's part of a training step, within a graph.

    Create it in the strategy's scope. `zeros` is a batch, with which variables are
    created that Keras would create in the first step.

    Attributes:
      measures_peers: True if a step measures how long it waits for other replicas.

    Raises:
      ConfigurationError: The model has no trainable variables, or its own train_step
        does not work with the options.
    """

    def __init__(self, model_adapter: ModelAdapter, strategy: tf.distribute.Strategy, options: TrainingOptions, zeros: Any):
        self._adapter = model_adapter
        self._is_alone = strategy.num_replicas_in_sync == 1
        model_adapter.prepare(zeros)
        variables = model_adapter.model.trainable_variables
        if not variables:
            raise ConfigurationError("module: the model has no trainable variables, or base_model.freeze freezes all")
        if not model_adapter.applies_gradients:
            gradients_lib.prepare(model_adapter.optimizer, variables)
        elif options.gradient_accumulation_steps > 1:
            raise ConfigurationError(
                "module: the model has a train_step of its own, which applies gradients by itself; write "
                "gradient_accumulation_steps=1, or return a task with train_step and eval_step"
            )
        self.gradients = self._gradients
        is_mesh = isinstance(strategy, MeshStrategy)
        # Keras 3 sets the model's jit_compile itself if it sees a GPU, so it is ignored
        # there. DTensor places each operation by itself.
        if options.jit_compile or (not keras_models.is_keras_3() and model_adapter.model.jit_compile and not is_mesh):
            # The update of the weights is left out: it communicates between replicas,
            # which a compiled function cannot do.
            self.gradients = tf.function(self._gradients, jit_compile=True, reduce_retracing=True)
        is_measurable = not (step_timing.computes_behind_host() or model_adapter.applies_gradients or self._is_alone)
        # DTensor has no operation for the time of day.
        self.measures_peers = is_measurable and not is_mesh

    def train(self, batch: Any, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs a step on one batch; returns the loss, and the seconds of `apply`."""
        if self._adapter.applies_gradients:
            return self._adapter.train_step(*batch), tf.zeros([], tf.float64)
        # Without accumulation, a single replica has all examples of the step.
        loss, gradients = self.gradients(batch, 1.0 if self._is_alone else share)
        return loss, self.apply(gradients)

    def _gradients(self, batch: Any, share: tf.Tensor | float) -> tuple[tf.Tensor, Gradients]:
        """Computes the loss of a batch, and gradients weighted by `share`.

        `share` is the part of the step's examples that the batch has.
        """

        def compute_loss() -> tf.Tensor:
            with loss_reduction.replica_share(share):
                return self._adapter.train_step(*batch)

        variables = self._adapter.model.trainable_variables
        loss, gradients = gradients_lib.compute(self._adapter.optimizer, compute_loss, variables, share)
        return loss, {index: gradient for index, gradient in enumerate(gradients) if gradient is not None}

    def dense_gradients(self, batch: Any, share: tf.Tensor | float) -> tuple[tf.Tensor, Gradients]:
        """Computes the gradients as dense tensors, those of embeddings too."""
        loss, gradients = self.gradients(batch, share)
        return loss, {index: tf.convert_to_tensor(gradient) for index, gradient in gradients.items()}

    def add_gradients(self, batch: Any, share: tf.Tensor, previous: Gradients) -> tuple[tf.Tensor, Gradients]:
        """Adds the gradients of another batch of the step."""
        loss, gradients = self.dense_gradients(batch, share)
        return loss, {index: previous[index] + gradient for index, gradient in gradients.items()}

    def apply(self, gradients: Gradients) -> tf.Tensor:
        """Sums and applies gradients; returns the seconds that the sum took."""
        variables = self._adapter.model.trainable_variables
        return gradients_lib.apply(self._adapter.optimizer, gradients, variables, self.measures_peers)

    def evaluate(self, batch: Any) -> None:
        """Updates the metrics from a batch of an evaluation."""
        self._adapter.eval_step(*batch)
