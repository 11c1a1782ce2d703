"""Training a compiled Keras model under a strategy: what `fit` does, with many steps in each TensorFlow call.

A user of `fit` finds the same epochs, losses, metrics, validation and callbacks. Two things differ, for speed: steps go
on in TensorFlow without a return to Python, unless a callback wants to hear of batches; and the datasets are iterated on
from epoch to epoch, instead of being opened anew.
"""

import time
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module import compatibility, learning_rate
from tfx_distribute.trainer_module import data as data_lib
from tfx_distribute.trainer_module import module as module_lib
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.features import Features
from tfx_distribute.trainer_module.job import Data, Schedule, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.progress import Progress, Reporter
from tfx_distribute.trainer_module.steps import Steps

# Datasets that are being iterated: closing those of several devices takes seconds, and the process ends soon anyway.
_open_iterators: list[Any] = []

CALL_SECONDS = 0.5  # how long one TensorFlow call of many steps aims to take: as often as progress is shown


@dataclass(frozen=True)
class Plan:
    """The numbers of a run, once the replicas are known.

    Attributes:
      num_replicas: Replicas that train in step.
      global_batch_size: Examples per training step over all replicas.
      steps_per_epoch: Training steps of one Keras epoch.
      epochs: Keras epochs.
    """

    num_replicas: int
    global_batch_size: int
    steps_per_epoch: int
    epochs: int

    @property
    def train_steps(self) -> int:
        """Training steps in all."""
        return self.steps_per_epoch * self.epochs


def make_plan(schedule: Schedule, num_examples: int, num_replicas: int) -> Plan:
    """Works out how many steps a schedule is.

    With `epochs`, an epoch is the whole number of steps nearest to the examples. With `train_steps`, all steps are one
    Keras epoch, as in TFX's own examples.

    Raises:
      ConfigurationError: There are fewer examples than one global batch.
    """
    batch = schedule.per_replica_batch_size * num_replicas
    if num_examples < batch:
        raise ConfigurationError(
            f"per_replica_batch_size: {schedule.per_replica_batch_size} on {num_replicas} replicas is a global batch of "
            f"{batch}, but the train split has {num_examples} examples; write at most {num_examples // num_replicas}"
        )
    if schedule.epochs:
        return Plan(num_replicas, batch, round(num_examples / batch), schedule.epochs)
    return Plan(num_replicas, batch, schedule.train_steps, 1)


def train(
    job: TrainingJob,
    data: Data,
    features: Features,
    strategy: tf.distribute.Strategy,
    reporter: Reporter,
    is_chief: bool,
) -> tuple[tf.keras.Model, TrainingResult]:
    """Builds the user's model under the strategy and trains it.

    Args:
      job: What to train.
      data: The job's data.
      features: The features of the data's examples.
      strategy: The strategy of this process.
      reporter: Where to say how far it is.
      is_chief: Whether this process writes TensorBoard logs.

    Returns:
      The trained model and what came of it.

    Raises:
      ConfigurationError: `build_model` returned something else than a compiled Keras model, or data and batch do not fit.
    """
    plan = make_plan(job.schedule, data.train.num_examples, strategy.num_replicas_in_sync)
    model, own_callbacks = _build(job, features, strategy, plan, is_chief)
    readers = job.distribution.num_workers  # each training process reads for its own replicas
    progress = _Progress(reporter, plan, plan.global_batch_size // readers)
    tensorboard = []
    if is_chief:
        tensorboard = [tf.keras.callbacks.TensorBoard(job.outputs.model_run_dir, write_graph=False, profile_batch=0)]
    callbacks = tf.keras.callbacks.CallbackList(
        own_callbacks + tensorboard,
        model=model,
        epochs=plan.epochs,
        steps=plan.steps_per_epoch,
        verbose=0,
    )
    per_replica = job.schedule.per_replica_batch_size
    training = iter(
        strategy.distribute_datasets_from_function(
            lambda context: data_lib.train_dataset(data, features, context, per_replica, job.schedule.seed)
        )
    )
    evaluation = _evaluation(job.schedule, data, features, strategy, readers)
    _open_iterators.extend((training, evaluation))
    start = time.monotonic()
    with strategy.scope():
        by = compatibility.learning_rate_factor(job.schedule.learning_rate_scaling, plan.num_replicas)
        steps = Steps(model, strategy, learning_rate.scale(model.optimizer, by, job.schedule.warmup_steps))
    metrics: dict[str, float] = {}
    with strategy.scope():
        callbacks.on_train_begin()
        progress.report()
        model.stop_training = False
        for epoch in range(plan.epochs):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            _train_epoch(steps, training, plan.steps_per_epoch, callbacks, progress)
            metrics = _floats(steps.metrics())
            if evaluation is not None:
                batches, eval_steps = evaluation
                callbacks.on_test_begin()
                model.reset_metrics()
                steps.evaluate(batches, tf.constant(eval_steps))
                evaluated = _floats(steps.metrics())
                callbacks.on_test_end(evaluated)
                metrics |= {f"val_{name}": value for name, value in evaluated.items()}
            callbacks.on_epoch_end(epoch, metrics)
            progress.report_if_due(metrics)
            if steps.agree(float(model.stop_training)) > 0:
                break
        progress.report(metrics)
        callbacks.on_train_end(metrics)
    return model, TrainingResult(
        num_replicas=plan.num_replicas,
        global_batch_size=plan.global_batch_size,
        train_steps=progress.step,
        seconds=time.monotonic() - start,
        metrics=metrics,
    )


def _build(
    job: TrainingJob, features: Features, strategy: tf.distribute.Strategy, plan: Plan, is_chief: bool
) -> tuple[tf.keras.Model, list[tf.keras.callbacks.Callback]]:
    """The user's model, made in the strategy's scope, and the user's callbacks."""
    if job.schedule.precision != "float32":
        tf.keras.mixed_precision.set_global_policy(job.schedule.precision)
    tf.keras.utils.set_random_seed(job.schedule.seed)
    build_model = module_lib.load(job.module)
    context = module_lib.ModelContext(
        hparams=job.hparams,
        inputs=features.inputs(),
        label=features.label,
        transform_output=features.transform,
        num_replicas=plan.num_replicas,
        global_batch_size=plan.global_batch_size,
        train_steps=plan.train_steps,
        is_chief=is_chief,
        model_run_dir=job.outputs.model_run_dir,
    )
    with strategy.scope():
        model = build_model(context)
        callbacks = module_lib.load_callbacks(job.module, context)
    function = job.module.function
    if not isinstance(model, tf.keras.Model):
        raise ConfigurationError(
            f"module: {function} returned {type(model).__module__}.{type(model).__name__}; return a tf.keras.Model"
        )
    if not model.optimizer:
        raise ConfigurationError(f"module: {function} returned a model that is not compiled; call model.compile(...) in it")
    return model, callbacks


def _evaluation(
    schedule: Schedule, data: Data, features: Features, strategy: tf.distribute.Strategy, readers: int
) -> tuple[Any, int] | None:
    """An iterator over the eval split, again and again, and the steps of each time; None without such a split."""
    split = data.eval
    if split is None or not split.num_examples:
        return None
    replicas = strategy.num_replicas_in_sync // readers
    whole = data_lib.eval_steps(split, readers, replicas, schedule.per_replica_batch_size)
    steps = min(schedule.eval_steps or whole, whole)
    batches = strategy.distribute_datasets_from_function(
        lambda context: data_lib.eval_dataset(
            split, features, context, schedule.per_replica_batch_size, num_batches=steps * replicas
        )
    )
    return iter(batches), steps


def _train_epoch(
    steps: Steps, training: Any, num_steps: int, callbacks: tf.keras.callbacks.CallbackList, progress: "_Progress"
) -> None:
    """Takes the training steps of one epoch, in as few calls as progress reports allow."""
    # Whether some callback, of whichever process, wants to hear of each batch.
    one_by_one = steps.agree(float(callbacks._should_call_train_batch_hooks)) > 0
    count = 1
    done = 0
    while done < num_steps:
        if one_by_one:
            callbacks.on_train_batch_begin(done)
        began = time.monotonic()
        loss = float(steps.train(training, tf.constant(count)))
        took = time.monotonic() - began
        done += count
        progress.advance(count, loss)
        if one_by_one:
            callbacks.on_train_batch_end(done - 1, {"loss": loss})
        elif done < num_steps:
            # The first call also traces the function: grow by steps, not at once.
            longest = min(10 * count, int(count * CALL_SECONDS / max(took, 1e-9)))
            count = min(max(1, int(steps.agree(longest))), num_steps - done)


def _floats(metrics: dict[str, Any]) -> dict[str, float]:
    """Metrics as numbers; one that has several values, such as one for each class, as so many metrics."""
    floats: dict[str, float] = {}
    for name, value in metrics.items():
        values = tf.reshape(tf.cast(value, tf.float64), [-1]).numpy()
        names = [name] if len(values) == 1 else [f"{name}_{index}" for index in range(len(values))]
        floats.update(zip(names, map(float, values), strict=True))
    return floats


class _Progress:
    """Counts steps, and reports them at most once an interval."""

    def __init__(self, reporter: Reporter, plan: Plan, examples_per_step: int):
        self.step = 0
        self._reporter = reporter
        self._plan = plan
        self._examples_per_step = examples_per_step
        self._reported_step = 0
        self._reported_at = time.monotonic()

    def advance(self, count: int, loss: float) -> None:
        self.step += count
        self.report_if_due({"loss": loss})

    def report_if_due(self, metrics: dict[str, float]) -> None:
        if self._reporter.due():
            self.report(metrics)

    def report(self, metrics: dict[str, float] | None = None) -> None:
        now = time.monotonic()
        examples = (self.step - self._reported_step) * self._examples_per_step
        rate = examples / max(now - self._reported_at, 1e-9)
        self._reported_step, self._reported_at = self.step, now
        self._reporter.report(
            Progress(
                phase="train",
                step=self.step,
                train_steps=self._plan.train_steps,
                examples_per_second=rate,
                num_replicas=self._plan.num_replicas,
                global_batch_size=self._plan.global_batch_size,
                metrics=metrics,
            )
        )
