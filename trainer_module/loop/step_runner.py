"""Runs many training steps in one TensorFlow call, for strategies that train in step.

After each batch, `fit` returns to Python and reads every metric over all replicas.
Here, the loop over steps is part of the graph, and metrics are read only when needed.
`coordinator_steps` does the same for parameter servers, and `mesh_steps` for DTensor.

AutoGraph converts this module, and no other one of this package; see `autograph`.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.job.training_job import TrainingOptions
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.loop import step_timing
from tfx_distribute.trainer_module.loop.replica_step import ReplicaStep
from tfx_distribute.trainer_module.loop.step_timing import CallTime

Iterator = Any  # tf.data's or tf.distribute's
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
        # Traced twice, since training and evaluation may have different metrics. Of a
        # lambda, AutoGraph does not convert the method that it calls.
        self._metrics_function = tf.function(lambda evaluated: model_adapter.metrics(evaluated))

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
        take_steps = self._take_steps if self._is_tpu or not self._behind_host else self._take_steps_measuring_some
        losses, seconds = take_steps(iterator, num_steps, self._strategy.run(lambda: tf.constant(0.0)))
        loss = tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))
        return loss, step_timing.on_host(tf.concat, [[begin], seconds], 0)

    def _take_steps(self, iterator: Iterator, num_steps: tf.Tensor, losses: Any) -> tuple[Any, tf.Tensor]:
        """Returns the replicas' losses of the last step, and the seconds of all waits.

        `losses` are the values that the loop begins with.
        """
        seconds = tf.zeros([2], tf.float64)
        for _ in tf.range(num_steps):
            losses, times = self._take_step(iterator)
            seconds += times
        return losses, seconds

    def _take_steps_measuring_some(self, iterator: Iterator, num_steps: tf.Tensor, losses: Any) -> tuple[Any, tf.Tensor]:
        # A condition in each step would take longer than the rest of a small one. Of
        # the variables of a loop, TensorFlow keeps only int32 in the host's memory: for
        # others, the host would wait for the device in each round.
        microseconds = tf.zeros([2], tf.int32)
        for first in tf.range(0, num_steps, step_timing.SAMPLE):
            measured = tf.zeros([2], tf.int32)
            idle = step_timing.moment_after_device(self._strategy.experimental_local_results(losses))
            with tf.control_dependencies([idle]):
                for step in tf.range(tf.minimum(step_timing.SAMPLE, num_steps - first)):
                    losses, times = self._take_step(iterator)
                    measured = step_timing.on_host(tf.where, step == 0, step_timing.to_microseconds(times), measured)
            microseconds = step_timing.on_host(tf.add, microseconds, measured)
        return losses, step_timing.estimate(microseconds, num_steps)

    def _take_step(self, iterator: Iterator) -> tuple[Any, tf.Tensor]:
        """Runs a step; returns the replicas' losses and the seconds of its waits."""
        if self._options.gradient_accumulation_steps > 1:
            return self._take_step_in_parts(iterator)
        batch, waited = self._next(iterator)
        losses, summed = self._run(self.step.train, *batch)
        return losses, self._times_of_step(waited, summed)

    def _take_step_in_parts(self, iterator: Iterator) -> tuple[Any, tf.Tensor]:
        batch, waited = self._next(iterator)
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
