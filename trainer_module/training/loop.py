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
import warnings
from collections.abc import Sequence
from dataclasses import replace

import tensorflow as tf

from tfx_distribute.trainer_module.data import python_operations
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.step_plan import Plan, make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingData, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.lifecycle import atomic_files, preemption
from tfx_distribute.trainer_module.lifecycle.progress import Reporter
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.training import (
    coordinator_steps,
    export,
    gradients,
    keras_models,
    learning_rate,
    mesh_errors,
    model_builder,
    model_calls,
    optimizers,
    replica_values,
    saved_objects,
)
from tfx_distribute.trainer_module.training.base_model import warm_start
from tfx_distribute.trainer_module.training.best_model import BestModel, check_metric
from tfx_distribute.trainer_module.training.checkpoint import Checkpoints, Position, describe_settings
from tfx_distribute.trainer_module.training.epoch_runner import EpochRunner, StepCounter
from tfx_distribute.trainer_module.training.mesh_steps import MeshStepRunner
from tfx_distribute.trainer_module.training.model_adapters.adapter import ModelAdapter
from tfx_distribute.trainer_module.training.process_times import ProcessTimes
from tfx_distribute.trainer_module.training.profiler import Profiler
from tfx_distribute.trainer_module.training.sidecar_evaluator import SidecarCheckpointWriter
from tfx_distribute.trainer_module.training.step_runner import StepRunner
from tfx_distribute.trainer_module.training.tensorboard_logs import TensorBoardLogs
from tfx_distribute.trainer_module.user_code import callbacks as callbacks_lib


def train(
    job: TrainingJob,
    data: TrainingData,
    features: Features,
    strategy: tf.distribute.Strategy,
    reporter: Reporter,
    is_chief: bool,
) -> tuple[tf.keras.Model, TrainingResult]:
    """Builds the user's model under the strategy and trains it.

    Args:
      job: The training job.
      data: The job's data.
      features: The features of the data's examples.
      strategy: The strategy of this process.
      reporter: Reports progress.
      is_chief: True if this process writes TensorBoard logs.

    Returns:
      The trained model and the result of the training.

    Raises:
      ConfigurationError: `build_model` returned something that cannot be trained, or
        the data has fewer examples than the batch needs.
    """
    options, run_dir = job.training_options, job.outputs.model_run_dir
    strategy_info = job.distribution.info
    plan = make_plan(options, data.train.num_examples, strategy.num_replicas_in_sync, bool(strategy_info.fixed_batches))
    readers = strategy_table.readers(job.distribution)
    profiler = Profiler(strategy_table.profile_window(options), run_dir if is_chief else None)
    context = model_builder.make_context(job, features, plan, is_chief)
    with strategy.scope():
        reporter.enter("build_model")
        model_adapter = model_builder.build(job, context)
        reporter.enter("preparing to train")
        model_adapter.check_labels(features, data.label_ranges)
        input_pipeline = _make_input_pipeline(job, data, features, plan, model_adapter)
        user_callbacks = callbacks_lib.load(job.module, context, strategy)
    callbacks = tf.keras.callbacks.CallbackList(  # outside the scope: Keras refuses some under parameter servers
        user_callbacks + _make_tensorboard_callbacks(job, is_chief),
        model=model_adapter.model,
        epochs=plan.epochs,
        steps=plan.steps_per_epoch,
        verbose=0,
    )
    counter = StepCounter(
        reporter,
        plan,
        plan.global_batch_size // readers,
        lambda: learning_rate.read(model_adapter.optimizer, options.warmup_steps),
    )
    process_times = ProcessTimes(counter.meter, run_dir if is_chief else None)
    start = time.monotonic()
    with (
        strategy.scope(),
        counter.reporting_step_on_error(),
        mesh_errors.explaining_unsupported_operations() if isinstance(strategy, MeshStrategy) else contextlib.nullcontext(),
        input_pipeline.explaining_read_errors(),
        preemption.deferring_exit(),
        contextlib.ExitStack() as at_end,
    ):
        batches_per_step = plan.num_replicas * options.gradient_accumulation_steps
        rate_factor = strategy_table.learning_rate_factor(options.learning_rate_scaling, batches_per_step)
        all_optimizers = model_adapter.optimizers()
        warm_up = learning_rate.scale(all_optimizers, rate_factor, options.warmup_steps)
        optimizers.set_global_clipnorm(all_optimizers, options.global_clipnorm)
        step_runner = _choose_step_runner(strategy)(model_adapter, strategy, input_pipeline, options, warm_up)
        if job.outputs.serving_model_dir:
            _check_export(model_adapter, features, input_pipeline)
        sidecar_writer = (
            SidecarCheckpointWriter(model_adapter.model, run_dir, is_chief, plan.num_replicas)
            if job.distribution.num_evaluators
            else None
        )
        best_model = _make_best_model(job, plan, model_adapter, input_pipeline, is_chief)
        reporter.enter("reading the base model")
        base_model = warm_start.apply(job, model_adapter.model, model_adapter.optimizer, features.transform, strategy)
        callbacks_lib.check_monitors(user_callbacks, job.distribution.num_evaluators, input_pipeline.has_evaluation)
        callbacks_lib.check_same_everywhere(user_callbacks, step_runner.agree)
        at_end.enter_context(model_calls.checked(model_adapter.model, step_runner))
        model_adapter.model.stop_training = False
        reporter.enter("on_train_begin")
        callbacks.on_train_begin()
        reporter.enter("restoring the saved state")
        saved_objects.find(model_adapter.state())  # raises an error if something cannot be saved
        checkpoints = Checkpoints(
            job.outputs.checkpoint_dir,
            job.fault_tolerance,
            describe_settings(job, plan),
            is_chief,
            model_adapter,
            user_callbacks,
            in_background=_can_save_in_background(job),
            owner=job.outputs.result_file,
        )
        at_end.callback(checkpoints.wait)
        begin = _find_state(checkpoints, step_runner, job.outputs.checkpoint_dir)
        step_runner.open(begin.step)
        counter.begin(begin.step, checkpoints.remark)
        epoch_runner = EpochRunner(step_runner, options.steps_per_execution, callbacks, counter, profiler, checkpoints)
        metrics: dict[str, float] = {}
        has_diverged = False
        atomic_files.choose_temporary_folder()
        for epoch in range(begin.epoch, plan.epochs):
            first_step = begin.step_of_epoch if epoch == begin.epoch else 0
            if epoch == begin.epoch and not first_step:
                checkpoints.restore()  # a state between two epochs, whose on_epoch_begin is still to come
            model_adapter.reset_metrics()
            reporter.enter(f"on_epoch_begin of epoch {epoch + 1}")
            callbacks.on_epoch_begin(epoch)
            if first_step:
                checkpoints.restore()
            epoch_runner.run(epoch, first_step, plan.steps_of_epoch(epoch))
            if job.outputs.saves_end and epoch + 1 == plan.epochs:
                # Before the evaluation: a training that continues repeats it, and has
                # metrics even if no step is left.
                epoch_runner.save_end(epoch, plan.steps_of_epoch(epoch))
            metrics = epoch_runner.read_metrics()
            is_evaluated = (epoch + 1) % options.validation_freq == 0
            if is_evaluated and sidecar_writer:
                _hand_over(sidecar_writer, epoch, counter)
            elif is_evaluated and input_pipeline.has_evaluation:
                atomic_files.choose_temporary_folder()
                reporter.enter(f"the evaluation after epoch {epoch + 1}")
                model_adapter.reset_metrics()
                checkpoints.val_metrics = _add_val_prefix(epoch_runner.evaluate())
                metrics |= checkpoints.val_metrics
            reporter.enter(f"on_epoch_end of epoch {epoch + 1}")
            callbacks.on_epoch_end(epoch, metrics)
            if best_model and not sidecar_writer:
                reporter.enter("saving the best weights")
                with counter.meter.spending("save"):
                    best_model.offer(metrics, epoch, counter.step, step_runner.agree)
            counter.record_epoch(metrics)
            if is_chief and not has_diverged and not math.isfinite(metrics.get("loss", 0.0)):
                has_diverged = True
                counter.report(
                    metrics, f"the loss is {metrics['loss']:g} after epoch {epoch + 1}: the training has diverged"
                )
            if epoch == begin.epoch and plan.num_replicas > 1 and not isinstance(strategy, MeshStrategy):
                differing = replica_values.find_differing(
                    saved_objects.find(model_adapter.state()), strategy, step_runner.gather
                )
                if differing and is_chief:
                    counter.report(metrics, _describe_differing(differing))
            counter.report_if_due(metrics)
            ends, gathers_times = epoch_runner.ends_training(epoch, epoch + 1 == plan.epochs, process_times.are_due)
            if gathers_times:
                process_times.gather(step_runner, epoch)
                if process_times.remark and is_chief:
                    counter.report(metrics, process_times.remark)
            if ends:
                if counter.step < plan.train_steps and is_chief:
                    words = f"a callback has ended the training after step {counter.step} of {plan.train_steps}"
                    counter.report(metrics, words)
                break
        if sidecar_writer and not is_evaluated:
            _hand_over(sidecar_writer, epoch, counter)  # the evaluator's last metrics are those of the result
        if job.fault_tolerance.keep_checkpoints:
            reporter.enter("saving the training states to keep")
            checkpoints.keep(f"{run_dir}/checkpoints", counter.step)
        profiler.stop()
        seconds = time.monotonic() - start
        if sidecar_writer:
            reporter.enter("waiting for the evaluator", limited=False)  # `finish` has a time limit itself
            evaluated = sidecar_writer.finish()
            if step_runner.agree(evaluated is None)[0] > 0:  # the others wait here for the chief
                if is_chief:
                    counter.report(metrics, _describe_missing_evaluator(sidecar_writer.remark, options.export_best))
                reporter.enter("the evaluation of the last epoch")
                model_adapter.reset_metrics()
                evaluated = epoch_runner.evaluate()
                if best_model:
                    reporter.enter("saving the best weights")
                    best_model.read_again()
                    best_model.offer(_add_val_prefix(evaluated), epoch, counter.step, step_runner.agree)
            metrics |= _add_val_prefix(evaluated or {})
        # After an evaluation: the evaluator's weights are those before it too.
        gradients.finalize(model_adapter.optimizer, model_adapter.model.trainable_variables)
        counter.report(metrics)
        reporter.enter("on_train_end")
        callbacks.on_train_end(metrics)
        best = None
        if best_model:
            reporter.enter("restoring the best weights")
            step_runner.agree(0)  # the chief has waited for the evaluator
            best = best_model.restore()
            if best is None:
                counter.report(metrics, f"export_best: no {options.export_best} was finite, the last weights are exported")
    return model_adapter.model, TrainingResult(
        num_replicas=plan.num_replicas,
        global_batch_size=plan.global_batch_size,
        train_steps=counter.step,
        seconds=seconds,
        metrics=checkpoints.val_metrics | metrics,
        best=best,
        warm_start=base_model,
        time_use=process_times.time_use,
    )


def _make_input_pipeline(
    job: TrainingJob, data: TrainingData, features: Features, plan: Plan, model_adapter: ModelAdapter
) -> InputPipeline:
    readers, fixed = strategy_table.readers(job.distribution), keras_models.fixed_batch_size(model_adapter.model)
    if fixed and data.eval and data.eval.num_examples % fixed:
        warnings.warn(
            f"module: the model takes batches of {fixed} examples only; evaluations leave out examples that do not fill one",
            stacklevel=1,
        )
    return InputPipeline(
        data,
        features.select(model_adapter.required_features(features), keras_models.input_specs(model_adapter.model)),
        job.training_options,
        coordinator_steps.input_options(job.input_options) if job.distribution.info.parameter_servers else job.input_options,
        plan,
        readers,
        batches=plan.num_replicas * job.training_options.gradient_accumulation_steps // readers,
        fixed_evaluation=fixed is not None,
    )


def _check_export(model_adapter: ModelAdapter, features: Features, input_pipeline: InputPipeline) -> None:
    """Checks that the model can be exported, and its predictions served.

    Raises:
      ConfigurationError: They cannot.
    """
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


def _find_state(checkpoints: Checkpoints, step_runner: StepRunner, folder: str) -> Position:
    """Finds the saved state and checks that all processes have found the same.

    Raises:
      ConfigurationError: They have not.
    """
    position = checkpoints.find()
    if step_runner.agree(position.step) != [position.step]:
        raise ConfigurationError(
            f"checkpoint_dir: not all processes find the same saved state in {folder}; write a folder "
            "that all machines share"
        )
    return position


def _can_save_in_background(job: TrainingJob) -> bool:
    # Keras 3.12 makes new variables each time that TensorFlow copies its own, which
    # TensorFlow refuses from the second time on.
    is_possible = job.distribution.info.async_checkpointing and job.training_options.keras_version == 2
    return is_possible and job.fault_tolerance.async_checkpointing


def _choose_step_runner(strategy: tf.distribute.Strategy) -> type[StepRunner]:
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return coordinator_steps.CoordinatorStepRunner
    if isinstance(strategy, MeshStrategy):
        return MeshStepRunner
    return StepRunner


def _make_tensorboard_callbacks(job: TrainingJob, is_chief: bool) -> list[tf.keras.callbacks.Callback]:
    # If a Vertex AI job has a TensorBoard instance, Vertex AI sets a folder and streams
    # the logs in it to that instance. Source:
    # https://cloud.google.com/vertex-ai/docs/training/code-requirements#environment-variables
    folders = [job.outputs.model_run_dir, os.environ.get("AIP_TENSORBOARD_LOG_DIR")] if is_chief else []
    return [TensorBoardLogs(folder) for folder in filter(None, folders)]


def _hand_over(sidecar_writer: SidecarCheckpointWriter, epoch: int, counter: StepCounter) -> None:
    """Saves the weights for the evaluator, and reports if there is no space."""
    sidecar_writer.save(epoch)
    if sidecar_writer.remark:
        counter.report(message=sidecar_writer.remark)


def _describe_missing_evaluator(reason: str, export_best: str) -> str:
    message = f"{reason}: the training processes evaluate the last epoch instead"
    if export_best:
        message += "; export_best chooses from this evaluation and those that the evaluator did before"
    return message


def _describe_differing(names: Sequence[str]) -> str:
    mean = "tf.VariableAggregation.MEAN"
    if keras_models.is_keras_3():
        mean = "'mean' (BatchNormalization: synchronized=True)"
    return (
        f"module: the steps set {', '.join(names)} differently on each replica, and only the first one's is exported; write "
        f"aggregation={mean} where the variable is made"
    )


def _add_val_prefix(metrics: dict[str, float]) -> dict[str, float]:
    return {f"val_{name}": value for name, value in metrics.items()}
