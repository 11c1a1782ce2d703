"""Many training steps of a compiled Keras model in one TensorFlow call.

`fit` goes back to Python after each batch and reads every metric over all replicas each time. Here the loop over steps is
part of the graph, and metrics are read when somebody wants them. What a step does is Keras's own: the model's losses,
regularisers, metrics, optimizer and loss scale, or its `train_step` and `test_step` where it overrides them.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Iterator = Any  # tf.data's or tf.distribute's


class Steps:
    """The step functions of one model under one strategy. Traced once, whatever the number of steps.

    Args:
      model: A compiled Keras model, made in the strategy's scope.
      strategy: The strategy.
      before_step: Done before each training step, once for all replicas, in the graph.
    """

    def __init__(
        self, model: tf.keras.Model, strategy: tf.distribute.Strategy, before_step: Callable[[], None] | None = None
    ):
        self._model = model
        self._before_step = before_step
        self._strategy = strategy
        keras_model = tf.keras.Model
        own_step = type(model).train_step is not keras_model.train_step
        own_test = type(model).test_step is not keras_model.test_step
        own_metrics = type(model).compute_metrics is not keras_model.compute_metrics
        self._train_step = self._overridden_train_step if own_step or own_metrics else self._default_train_step
        self._test_step = self._overridden_test_step if own_test or own_metrics else self._default_test_step
        if model.jit_compile:
            self._train_step = tf.function(self._train_step, jit_compile=True, reduce_retracing=True)
        if model.run_eagerly:
            self.train, self.evaluate = self._train, self._evaluate
        else:
            self.train, self.evaluate = tf.function(self._train), tf.function(self._evaluate)
        self.metrics = tf.function(self._metrics)

    def agree(self, value: float) -> float:
        """The mean of a number over all processes, the same on each: for what they have to do alike.

        Collective operations of a graph are known by their place in it, the round of a loop included. Processes that
        divided the same steps into calls of different length would wait for each other without end.
        """
        if not isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return value
        return float(self._mean(tf.constant(value, tf.float64)))

    @tf.function
    def _mean(self, value: tf.Tensor) -> tf.Tensor:
        here = self._strategy.run(lambda own: own, args=(value,))
        return self._strategy.reduce(tf.distribute.ReduceOp.MEAN, here, axis=None)

    def _train(self, iterator: Iterator, num_steps: tf.Tensor) -> tf.Tensor:
        """Takes `num_steps` training steps; returns the last one's loss on this process's replicas, a scalar."""
        loss = tf.constant(0.0)
        for _ in tf.range(num_steps):
            if self._before_step is not None:
                self._before_step()
            losses = self._strategy.run(self._train_step, args=(next(iterator),))
            loss = tf.reduce_mean(tf.stack(self._strategy.experimental_local_results(losses)))
        return loss

    def _evaluate(self, iterator: Iterator, num_steps: tf.Tensor) -> None:
        """Takes `num_steps` evaluation steps into the model's metrics."""
        for _ in tf.range(num_steps):
            self._strategy.run(self._test_step, args=(next(iterator),))

    def _metrics(self) -> dict[str, tf.Tensor]:
        """The values of the model's metrics over all replicas. Every process of the cluster has to ask."""
        return self._model.get_metrics_result()

    def _default_train_step(self, batch: Any) -> tf.Tensor:
        """What `tf.keras.Model.train_step` does, but for reading the metrics after it."""
        model = self._model
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            prediction = model(x, training=True)
            loss = model.compute_loss(x, y, prediction, sample_weight)
        if loss is None:
            raise ValueError("the model has no loss: write model.compile(loss=...) or use add_loss")
        model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
        model.compiled_metrics.update_state(y, prediction, sample_weight)
        self._count_step()
        return self._for_one_replica(loss)

    def _overridden_train_step(self, batch: Any) -> tf.Tensor:
        logs = self._model.train_step(batch)
        self._count_step()
        return tf.reduce_mean(tf.cast(logs.get("loss", 0.0), tf.float32))

    def _default_test_step(self, batch: Any) -> None:
        """What `tf.keras.Model.test_step` does, but for reading the metrics after it."""
        x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(batch)
        prediction = self._model(x, training=False)
        self._model.compute_loss(x, y, prediction, sample_weight)
        self._model.compiled_metrics.update_state(y, prediction, sample_weight)

    def _overridden_test_step(self, batch: Any) -> None:
        self._model.test_step(batch)

    def _for_one_replica(self, loss: tf.Tensor) -> tf.Tensor:
        """Keras divides a replica's loss by the number of replicas, so that gradients can be summed."""
        return tf.cast(loss, tf.float32) * self._strategy.num_replicas_in_sync

    def _count_step(self) -> None:
        # Keras's TensorBoard callback reads the step from here.
        counter = getattr(self._model, "_train_counter", None)
        if counter is not None:
            counter.assign_add(1)
