"""Trains a model under a strategy as `fit` does, with many steps per TensorFlow call.

Epochs, losses, metrics, validation and callbacks are the same as under `fit`. Two
things differ, for speed: TensorFlow runs steps without returning to Python, unless a
callback has batch hooks; and datasets are iterated on from epoch to epoch instead of
being reopened.
"""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import tensorflow as tf

from tfx_distribute.trainer_module import export
from tfx_distribute.trainer_module.data import python_operations
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.step_plan import Plan, make_plan
from tfx_distribute.trainer_module.job.training_job import BestEvaluation, TrainingData, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.keras import keras_models, optimizers, saved_objects
from tfx_distribute.trainer_module.keras.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.liveness import preemption
from tfx_distribute.trainer_module.loop import coordinator_steps, gradients, mesh_steps, model_builder, peers
from tfx_distribute.trainer_module.loop.epoch_runner import EpochRunner, Profiler, StepCounter
from tfx_distribute.trainer_module.loop.process_times import ProcessTimes
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter
from tfx_distribute.trainer_module.state.base_model import warm_start
from tfx_distribute.trainer_module.state.best_model import BestModel, check_metric
from tfx_distribute.trainer_module.state.checkpoint import Checkpoints, Position, describe_settings
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.user_code import callbacks as callbacks_lib

_REORDERED = (
    "base_model: the order of {} has changed since it was trained, so rows of embeddings, or outputs for classes, may be "
    "those of other entries; name these layers in base_model.vocabularies"
)
# In one call of TensorFlow, a collective operation keeps the shape of its first round.
_DIFFERENT_SHAPES = (
    "module: the steps of the model communicate values of the batch's shape between replicas, and batches differ in size; "
    "write steps_per_execution=1 and gradient_accumulation_steps=1"
)


def train(
    job: TrainingJob,
    data: TrainingData,
    features: Features,
    strategy: tf.distribute.Strategy,
    reporter: Reporter,
    is_chief: bool,
) -> tuple[tf.keras.Model, TrainingResult]:
    """Builds the user's model under the strategy and trains it."""
    training = _Training(job, data, features, strategy, reporter, is_chief)
    start = time.monotonic()
    with training.explaining_errors():
        training.check_and_prepare(features)
        training.start_callbacks()
        begin = training.restore()
        training.run_epochs(begin)
        seconds = time.monotonic() - start
        training.finish()
    return training.model, training.result(seconds)


class _Training:
    """A training in one process. `train` calls its public methods in their order."""

    def __init__(
        self,
        job: TrainingJob,
        data: TrainingData,
        features: Features,
        strategy: tf.distribute.Strategy,
        reporter: Reporter,
        is_chief: bool,
    ):
        """Builds the model, its input and its callbacks."""
        self._job, self._options, self._strategy = job, job.training_options, strategy
        self._reporter, self._is_chief, self._run_dir = reporter, is_chief, job.outputs.model_run_dir
        fixed_batches = bool(job.distribution.info.fixed_batches)
        self._plan = make_plan(self._options, data.train.num_examples, strategy.num_replicas_in_sync, fixed_batches)
        window = strategy_table.profile_window(self._options)
        self._profiler = Profiler(window, self._run_dir if is_chief else None)
        context = model_builder.make_context(job, features, self._plan, is_chief)
        with strategy.scope():
            reporter.enter("build_model")
            self._adapter = model_builder.build(job, context)
            reporter.enter("preparing to train")
            self._adapter.check_labels(features, data.label_ranges)
            self._input = _make_input_pipeline(job, data, features, self._plan, self._adapter)
            self._user_callbacks = callbacks_lib.load(job.module, context)
        self.model = self._adapter.model
        self._callbacks = tf.keras.callbacks.CallbackList(  # outside the scope: Keras refuses some under parameter servers
            self._user_callbacks + _make_tensorboard_callbacks(job, is_chief),
            model=self.model,
            epochs=self._plan.epochs,
            steps=self._plan.steps_per_epoch,
            verbose=0,
        )
        self._counter = StepCounter(
            reporter,
            self._plan,
            self._plan.global_batch_size // strategy_table.readers(job.distribution),
            lambda: optimizers.read_rate(self._adapter.optimizer),
        )
        self._process_times, self._peers = ProcessTimes(self._counter.meter), peers.Peers(strategy)
        self._metrics: dict[str, float] = {}
        self._epoch, self._has_diverged = 0, False
        self._best: BestEvaluation | None = None

    @contextlib.contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Runs the training in the strategy's scope, and says more about its errors."""
        is_mesh = isinstance(self._strategy, MeshStrategy)
        with (
            self._strategy.scope(),
            self._counter.reporting_step_on_error(),
            mesh_steps.explaining_unsupported_operations() if is_mesh else contextlib.nullcontext(),
            self._input.explaining_read_errors(),
            preemption.deferring_exit(),
        ):
            try:
                yield
            except tf.errors.OpError as error:
                if "Shape mismatch in the collective" in str(error):
                    raise ConfigurationError(_DIFFERENT_SHAPES) from error
                raise

    def check_and_prepare(self, features: Features) -> None:
        """Prepares the steps, checks the export, and reads the base model."""
        job, options, plan, adapter = self._job, self._options, self._plan, self._adapter
        batches_per_step = plan.num_replicas * options.gradient_accumulation_steps
        rate_factor = strategy_table.learning_rate_factor(options.learning_rate_scaling, batches_per_step)
        if rate_factor != 1.0:
            optimizers.scale_rate(adapter.optimizer, rate_factor, adapter.applies_gradients)
        step_runner_class = StepRunner
        if isinstance(self._strategy, tf.distribute.ParameterServerStrategy):
            step_runner_class = coordinator_steps.CoordinatorStepRunner
        elif isinstance(self._strategy, MeshStrategy):
            step_runner_class = mesh_steps.MeshStepRunner
        self._steps = step_runner_class(adapter, self._strategy, self._input, options)
        if job.outputs.serving_model_dir:
            _check_export(adapter, features, self._input)
        self._best_model = _make_best_model(job, plan, adapter, self._input, self._is_chief)
        self._reporter.enter("reading the base model")
        self._base_model = warm_start.apply(job, self.model, adapter.optimizer, features.transform)
        if self._is_chief and self._base_model and self._base_model.reordered:
            self._reporter.report(Progress("start", message=_REORDERED.format(", ".join(self._base_model.reordered))))

    def start_callbacks(self) -> None:
        """Checks the user's callbacks, and calls `on_train_begin`."""
        callbacks_lib.check_same_everywhere(self._user_callbacks, self._peers.agree)
        self.model.stop_training = False
        self._reporter.enter("on_train_begin")
        self._callbacks.on_train_begin()

    def restore(self) -> Position:
        """Finds the saved state, and returns where the training begins."""
        job = self._job
        self._reporter.enter("restoring the saved state")
        saved_objects.find(self._adapter.state())  # raises an error if something cannot be saved
        self._checkpoints = Checkpoints(
            job.outputs.checkpoint_dir,
            job.fault_tolerance,
            describe_settings(job, self._plan),
            self._is_chief,
            self._adapter,
            self._user_callbacks,
            owner=job.outputs.result_file,
        )
        begin = self._checkpoints.find()
        if self._peers.agree(begin.step) != [begin.step]:
            raise ConfigurationError(
                f"checkpoint_dir: not all processes find the same saved state in {job.outputs.checkpoint_dir}; write a "
                "folder that all machines share"
            )
        self._steps.open(begin.step)
        self._counter.begin(begin.step, self._checkpoints.remark)
        per_call, callbacks = self._options.steps_per_execution, self._callbacks
        self._epochs = EpochRunner(
            self._steps, self._peers, per_call, callbacks, self._counter, self._profiler, self._checkpoints
        )
        return begin

    def run_epochs(self, begin: Position) -> None:
        """Trains until the last epoch, or until a callback ends the training."""
        plan, counter = self._plan, self._counter
        for epoch in range(begin.epoch, plan.epochs):
            self._epoch = epoch
            self._train_epoch(begin)
            self._evaluate()
            self._end_epoch()
            if epoch == begin.epoch:
                self._report_differing()
            if self._reporter.due():
                counter.report(self._metrics)
            ends, gathers = self._epochs.ends_training(epoch, epoch + 1 == plan.epochs, self._process_times.are_due)
            if gathers:
                self._process_times.gather(self._peers)
                if self._process_times.remark:
                    self._report(self._process_times.remark)
            if ends:
                if counter.step < plan.train_steps:
                    self._report(f"a callback has ended the training after step {counter.step} of {plan.train_steps}")
                return

    def _train_epoch(self, begin: Position) -> None:
        epoch, steps = self._epoch, self._plan.steps_of_epoch(self._epoch)
        is_first = epoch == begin.epoch
        first_step = begin.step_of_epoch if is_first else 0
        if is_first and not first_step:
            self._checkpoints.restore()  # a state between two epochs, whose on_epoch_begin is still to come
        self._adapter.reset_metrics()
        self._reporter.enter(f"on_epoch_begin of epoch {epoch + 1}")
        self._callbacks.on_epoch_begin(epoch)
        if first_step:
            self._checkpoints.restore()
        self._epochs.run(epoch, first_step, steps)
        if self._job.outputs.saves_end and epoch + 1 == self._plan.epochs:
            # Before the evaluation: a training that continues repeats it, and has
            # metrics even if no step is left.
            self._epochs.save(Position(epoch, steps, self._counter.step))
        self._metrics = self._epochs.read_metrics()

    def _evaluate(self) -> None:
        if (self._epoch + 1) % self._options.validation_freq == 0 and self._input.has_evaluation:
            self._reporter.enter(f"the evaluation after epoch {self._epoch + 1}")
            self._adapter.reset_metrics()
            self._checkpoints.val_metrics = {f"val_{name}": value for name, value in self._epochs.evaluate().items()}
            self._metrics |= self._checkpoints.val_metrics

    def _end_epoch(self) -> None:
        epoch, metrics = self._epoch, self._metrics
        self._reporter.enter(f"on_epoch_end of epoch {epoch + 1}")
        self._callbacks.on_epoch_end(epoch, metrics)
        if self._best_model:
            self._reporter.enter("saving the best weights")
            with self._counter.meter.spending("save"):
                self._best_model.offer(metrics, epoch, self._counter.step, self._peers.agree)
        self._counter.record_epoch(metrics)
        if not self._has_diverged and not math.isfinite(metrics.get("loss", 0.0)):
            self._has_diverged = True
            self._report(f"the loss is {metrics['loss']:g} after epoch {epoch + 1}: the training has diverged")

    def _report_differing(self) -> None:
        """Names variables that differ between replicas, though one is exported."""
        if self._plan.num_replicas == 1 or isinstance(self._strategy, MeshStrategy):
            return
        found = saved_objects.find(self._adapter.state())
        if message := peers.describe_differing(found, self._strategy, self._peers):
            self._report(message)

    def _report(self, message: str) -> None:
        if self._is_chief:
            self._counter.report(self._metrics, message)

    def finish(self) -> None:
        """Calls `on_train_end`, and restores the best weights."""
        self._profiler.stop()
        gradients.finalize(self._adapter.optimizer, self.model.trainable_variables)
        self._counter.report(self._metrics)
        self._reporter.enter("on_train_end")
        self._callbacks.on_train_end(self._metrics)
        if self._best_model:
            self._reporter.enter("restoring the best weights")
            self._peers.agree(0)  # the chief has written them
            self._best = self._best_model.restore()
            if self._best is None:
                words = f"export_best: no {self._options.export_best} was finite, the last weights are exported"
                self._counter.report(self._metrics, words)

    def result(self, seconds: float) -> TrainingResult:
        """Returns the result of a training that took so many seconds."""
        return TrainingResult(
            num_replicas=self._plan.num_replicas,
            global_batch_size=self._plan.global_batch_size,
            train_steps=self._counter.step,
            seconds=seconds,
            metrics=self._checkpoints.val_metrics | self._metrics,
            best=self._best,
            warm_start=self._base_model,
            time_use=self._process_times.time_use,
        )


def _make_input_pipeline(
    job: TrainingJob, data: TrainingData, features: Features, plan: Plan, model_adapter: ModelAdapter
) -> InputPipeline:
    readers = strategy_table.readers(job.distribution)
    return InputPipeline(
        data,
        features.select(model_adapter.required_features(features), keras_models.input_specs(model_adapter.model)),
        job.training_options,
        coordinator_steps.input_options(job.input_options) if job.distribution.info.parameter_servers else job.input_options,
        plan,
        readers,
        batches=plan.num_replicas * job.training_options.gradient_accumulation_steps // readers,
    )


def _check_export(model_adapter: ModelAdapter, features: Features, input_pipeline: InputPipeline) -> None:
    """Checks that the model can be exported, and its predictions served."""
    model = model_adapter.model
    features.check_portable()
    saved_objects.find({"model": model}, exported=True)
    prediction = model_adapter.prediction
    if prediction is None:
        # Steps of the user's own may give the model the label, which batches have
        # beside the features.
        read = features.select(keras_models.input_names(model, features), keras_models.input_specs(model))
        zeros, *_ = replace(input_pipeline, features=read).zeros()
        prediction = model_adapter.trace_prediction(zeros)
    python_operations.refuse("module", model_adapter.python_operation)
    export.check_prediction(model, features, prediction)


def _make_best_model(
    job: TrainingJob, plan: Plan, model_adapter: ModelAdapter, input_pipeline: InputPipeline, is_chief: bool
) -> BestModel | None:
    if not job.training_options.export_best:
        return None
    names, evaluated_names = (list(model_adapter.metrics(evaluated)) for evaluated in (False, True))
    check_metric(job, plan, names, evaluated_names, input_pipeline.has_evaluation)
    return BestModel(job, plan, model_adapter.model, is_chief)


def _make_tensorboard_callbacks(job: TrainingJob, is_chief: bool) -> list[tf.keras.callbacks.Callback]:
    # If a Vertex AI job has a TensorBoard instance, Vertex AI sets a folder and streams
    # the logs in it to that instance. Source:
    # https://cloud.google.com/vertex-ai/docs/training/code-requirements#environment-variables
    folders = [job.outputs.model_run_dir, os.environ.get("AIP_TENSORBOARD_LOG_DIR")] if is_chief else []
    kind = tf.keras.callbacks.TensorBoard
    return [kind(folder, write_graph=False, profile_batch=0) for folder in filter(None, folders)]
