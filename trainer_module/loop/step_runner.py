"""Runs many training steps in one TensorFlow call, for strategies that train in step.

After each batch, `fit` returns to Python and reads every metric over all replicas.
Here, the loop over steps is part of the graph, and metrics are read only when needed.
`coordinator_steps` does the same for parameter servers, and `mesh_steps` for DTensor.
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

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
        loss, call_time = step_runner.train(num_steps=100)
        metrics = step_runner.metrics()

    Attributes:
      call_seconds: Target duration of one call of `train`, so that progress can be
        shown about as often.

    Raises:
      ConfigurationError: The model has no trainable variables, or its own train_step
        does not work with the options.
    """

    call_seconds = 0.5

    def __init__(
        self,
        model_adapter: ModelAdapter,
        strategy: tf.distribute.Strategy,
        input_pipeline: InputPipeline,
        options: TrainingOptions,
    ):
        self._model_adapter = model_adapter
        self._strategy = strategy
        self._batches_per_step = options.gradient_accumulation_steps
        model_adapter.prepare(input_pipeline.zeros())
        self._variables = model_adapter.model.trainable_variables
        if not self._variables:
            raise ConfigurationError("module: the model has no trainable variables, or base_model.freeze freezes all")
        # Those that the optimizer knows. Callbacks may freeze some before the first
        # step.
        self._known = {id(variable): variable for variable in self._variables}
        # Indices of the variables that the loss depends on; known once a step is
        # traced.
        self._with_gradient: list[int] = []
        self._compute_gradients = self._gradients
        # Keras 3 sets the model's jit_compile itself if it sees a GPU, so it is ignored
        # there.
        if options.jit_compile or (not keras_models.is_keras_3() and model_adapter.model.jit_compile):
            # The update of the weights is left out: it communicates between replicas,
            # which a compiled function cannot do.
            self._compute_gradients = tf.function(self._gradients, jit_compile=True, reduce_retracing=True)
        if model_adapter.applies_gradients and self._batches_per_step > 1:
            raise ConfigurationError(
                "module: the model has a train_step of its own, which applies gradients by itself; write "
                "gradient_accumulation_steps=1, or return a task with train_step and eval_step"
            )
        if not model_adapter.applies_gradients:
            gradients_lib.prepare(model_adapter.optimizer, self._variables)
        eagerly = model_adapter.model.run_eagerly
        self._train_function = self._train_on_all if eagerly else tf.function(self._train_on_all)
        self._evaluate_function = self._evaluate if eagerly else tf.function(self._evaluate)
        self._steps_per_execution = options.steps_per_execution
        # Traced twice, since training and evaluation may have different metrics.
        self._metrics_function = tf.function(model_adapter.metrics)
        self._input_pipeline = input_pipeline
        self._behind_host = step_timing.computes_behind_host()
        self._is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        self._measures_peers = not (
            self._behind_host or model_adapter.applies_gradients or strategy.num_replicas_in_sync == 1
        )

    def open(self, first_step: int) -> None:
        """Opens the datasets. Call this before `train` and `evaluate`.

        Reading starts after the examples of the `first_step` steps of earlier tries.
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

    def train(self, num_steps: int) -> tuple[Any, CallTime]:
        """Runs training steps.

        Returns:
          The mean loss of the last step on this process's replicas, a number or a
          scalar tensor that a device may still compute, and the time of the call.
        """
        loss, times = self._train_function(tf.constant(num_steps))
        train_counter = getattr(self._model_adapter.model, "_train_counter", None)
        if train_counter is not None:  # Keras 2: its TensorBoard callback reads the step from here
            train_counter.assign_add(num_steps, read_value=False)
        return loss, self._call_time(*times.numpy())

    def _call_time(self, begin: float, input_seconds: float, peers: float) -> CallTime:
        return CallTime(float(begin), float(input_seconds), float(peers) if self._measures_peers else None)

    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        """Evaluates on the whole eval split; updates the metrics.

        `callbacks` have hooks for the batches of an evaluation. Without them, and
        without `steps_per_execution`, all batches are one TensorFlow call.
        """
        per_call = self._steps_per_execution or (1 if callbacks else self._eval_steps)
        for first in range(0, self._eval_steps, per_call):
            count = min(per_call, self._eval_steps - first)
            if callbacks:
                callbacks.on_test_batch_begin(first)
            self._evaluate_function(self._evaluation, tf.constant(count))
            if callbacks:
                callbacks.on_test_batch_end(first + count - 1, as_floats(self.metrics(evaluated=True)))

    def metrics(self, evaluated: bool = False) -> dict[str, tf.Tensor]:
        """Returns the values of the metrics over all replicas, by name.

        All processes of the cluster have to call this together. With `evaluated`, they
        are those of an evaluation, else those of training steps.
        """
        return self._metrics_function(evaluated)

    @property
    def has_peers(self) -> bool:
        """True if other processes take each step together with this one."""
        return isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy)

    @property
    def measures_peers(self) -> bool:
        """True if `train` measures how long this process waits for the others."""
        return self._measures_peers

    def agree(self, *values: float) -> list[float]:
        """Returns the means of numbers over all processes.

        Use it wherever all processes have to make the same decision, because the result
        is the same in each. TensorFlow identifies a collective operation by its place
        in the graph, including the round of a loop: processes that divided the same
        steps into calls of different length would wait for each other forever. Takes
        numbers and booleans.

            any_stops = step_runner.agree(stops)[0] > 0
        """
        if not self.has_peers:
            return list(values)
        return [float(mean) for mean in self._mean(tf.constant([float(value) for value in values], tf.float64))]

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Returns the numbers of all processes, a list for each of their replicas.

        All processes of the cluster have to call this together, with equally many
        numbers.
        """
        if not self.has_peers:
            return [list(values)]
        rows = self._gather(tf.constant([values], tf.float64))
        return [[float(value) for value in row] for row in rows.numpy()]

    @tf.function(autograph=False)
    def _gather(self, values: tf.Tensor) -> tf.Tensor:
        # tf.identity: collective operations need a value that has a device.
        replica_rows = self._strategy.run(lambda row: _gather_rows(tf.identity(row)), args=(values,))
        return self._strategy.experimental_local_results(replica_rows)[0]

    @tf.function(autograph=False)
    def _mean(self, values: tf.Tensor) -> tf.Tensor:
        per_replica = self._strategy.run(lambda value: value, args=(values,))
        return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, per_replica, axis=None)

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
        losses, seconds = self._zero_losses(), tf.zeros([2], tf.float64)
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
                        measured = step_timing.choose(step == 0, step_timing.to_microseconds(times), measured)
                microseconds = step_timing.add(microseconds, measured)
            seconds = step_timing.estimate(microseconds, num_steps)
        loss = tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))
        return loss, step_timing.join(begin, seconds)

    def _take_step(self, iterator: Iterator) -> tuple[Any, tf.Tensor]:
        """Runs a training step.

        Returns the losses of the replicas, and a vector: the seconds for which the step
        waited for batches, and for peers.
        """
        batch, waited = self._next(iterator)
        if self._batches_per_step == 1:
            losses, summed = self._run(self._whole_step, *batch)
        else:
            losses, gradients = self._run(self._first_gradients, *batch)
            for _ in tf.range(1, self._batches_per_step):
                batch, more = self._next(iterator)
                waited = step_timing.add(waited, more)
                losses, gradients = self._run(self._add_gradients, *batch, gradients)
            summed = self._run(self._apply, gradients)
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
            peers = self._strategy.experimental_local_results(summed)[0] if self._measures_peers else tf.zeros_like(waited)
            return tf.stack([waited, peers])

    def _evaluate(self, iterator: Iterator, num_steps: tf.Tensor) -> None:
        for _ in tf.range(num_steps):
            self._run(self._eval_step, next(iterator))

    def _zero_losses(self) -> Any:
        return self._strategy.run(lambda: tf.constant(0.0))

    def _eval_step(self, batch: Any) -> None:
        self._model_adapter.eval_step(*batch)

    def _whole_step(self, batch: Any, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs one replica's training step without accumulation.

        Returns the loss, and the seconds of `_apply`.
        """
        if self._model_adapter.applies_gradients:
            return self._model_adapter.train_step(*batch), tf.zeros([], tf.float64)
        # Without accumulation, a single replica has all examples of the step.
        loss, gradients = self._compute_gradients(batch, share if self._strategy.num_replicas_in_sync > 1 else 1.0)
        return loss, self._apply(gradients)

    def _gradients(self, batch: Any, share: tf.Tensor | float) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Computes the loss of a replica's batch, and gradients weighted by `share`.

        `share` is the part of the step's examples that the batch has. Returns the
        gradients of the variables that the loss depends on.
        """

        def compute_loss() -> tf.Tensor:
            with loss_reduction.replica_share(share):
                return self._model_adapter.train_step(*batch)

        self._variables = self._model_adapter.model.trainable_variables
        loss, gradients = gradients_lib.compute(self._model_adapter.optimizer, compute_loss, self._variables, share)
        self._check_gradients(gradients)
        return loss, [gradients[index] for index in self._with_gradient]

    @tf.autograph.experimental.do_not_convert  # contains no user code
    def _check_gradients(self, gradients: list[Any]) -> None:
        """Notes which variables have a gradient, and warns of those that have none.

        Raises ConfigurationError if no variable has a gradient, or the optimizer does
        not know a variable, because it was not there or not trainable before training.
        """
        trainable = self._model_adapter.model.trainable_variables
        unknown = [_name(variable) for variable in trainable if id(variable) not in self._known]
        if unknown:
            raise ConfigurationError(
                f"module: the optimizer does not know {', '.join(unknown)}, which a train_step has made, or a callback has "
                "made trainable; make all of the model's variables in build_model; on_train_begin may only freeze some"
            )
        self._with_gradient = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if not self._with_gradient:
            raise ConfigurationError(
                "module: the loss does not depend on any trainable variable, or not in a way that can be differentiated; "
                "use operations that have a gradient (tf.round, tf.argmax and casts to integers have none)"
            )
        untrained = [self._variables[index] for index, gradient in enumerate(gradients) if gradient is None]
        if untrained:
            names = ", ".join(map(_name, untrained))
            warnings.warn(f"module: the loss does not depend on {names}, which will not be trained", stacklevel=1)

    def _first_gradients(self, batch: Any, share: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._compute_gradients(batch, share)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _add_gradients(self, batch: Any, share: tf.Tensor, previous: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        loss, gradients = self._first_gradients(batch, share)
        return loss, [old + new for old, new in zip(previous, gradients, strict=True)]

    def _apply(self, gradients: list[tf.Tensor]) -> tf.Tensor:
        """Sums and applies gradients; returns the seconds that the sum took."""
        variables = [self._variables[index] for index in self._with_gradient]
        return gradients_lib.apply(self._model_adapter.optimizer, gradients, variables, self._measures_peers)


@tf.autograph.experimental.do_not_convert
def _gather_rows(row: tf.Tensor) -> tf.Tensor:
    return tf.distribute.get_replica_context().all_gather(row, axis=0)


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))
