"""Training under a strategy: what `fit` does, with many steps in each TensorFlow call.

A user of `fit` finds the same epochs, losses, metrics, validation and callbacks. Two things differ, for speed: steps go
on in TensorFlow without a return to Python, unless a callback wants to hear of batches; and the datasets are iterated on
from epoch to epoch, instead of being opened anew.
"""

import os
import time
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.step_plan import Plan, make_plan
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingData, TrainingJob, TrainingResult
from tfx_distribute.trainer_module.lifecycle import atomic_files, preemption
from tfx_distribute.trainer_module.lifecycle.progress import Reporter
from tfx_distribute.trainer_module.strategies.mesh_strategy import MeshStrategy
from tfx_distribute.trainer_module.training import gradients, learning_rate, model_builder
from tfx_distribute.trainer_module.training.checkpoint import Checkpoints
from tfx_distribute.trainer_module.training.coordinator_steps import CoordinatorStepRunner
from tfx_distribute.trainer_module.training.epoch_runner import EpochRunner, StepCounter
from tfx_distribute.trainer_module.training.mesh_steps import MeshStepRunner
from tfx_distribute.trainer_module.training.model_adapters import as_floats
from tfx_distribute.trainer_module.training.profiler import Profiler
from tfx_distribute.trainer_module.training.sidecar_evaluator import SidecarCheckpointWriter
from tfx_distribute.trainer_module.training.step_runner import StepRunner
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
      job: What to train.
      data: The job's data.
      features: The features of the data's examples.
      strategy: The strategy of this process.
      reporter: Where to say how far it is.
      is_chief: Whether this process writes TensorBoard logs.

    Returns:
      The trained model and what came of it.

    Raises:
      ConfigurationError: `build_model` returned something that cannot be trained, or data and batch do not fit.
    """
    schedule, run_dir = job.schedule, job.outputs.model_run_dir
    row = job.distribution.info
    plan = make_plan(schedule, data.train.num_examples, strategy.num_replicas_in_sync, bool(row.fixed_batches))
    readers = strategy_table.readers(job.distribution)
    processes = strategy_table.reading_processes(job.distribution)
    if data.train.num_examples < processes:
        raise ConfigurationError(
            f"num_workers: {processes} workers read, but the train split has {data.train.num_examples} examples; write "
            f"num_workers={data.train.num_examples} or less"
        )
    counter = StepCounter(reporter, plan, plan.global_batch_size // readers)
    profiler = Profiler(strategy_table.profile_window(schedule), run_dir if is_chief else None)
    told = model_builder.make_context(job, features, plan, is_chief)
    with strategy.scope():
        reporter.enter("build_model")
        trained = model_builder.build(job, told)
        reporter.enter("preparing to train")
        feed = InputPipeline(
            data,
            features.select(trained.reads(set(features.inputs()))),
            schedule,
            job.reading,
            plan,
            readers,
            batches=0 if row.parameter_servers else plan.num_replicas * schedule.gradient_accumulation_steps // readers,
        )
        own_callbacks = callbacks_lib.load(job.module, told, strategy)
    callbacks = tf.keras.callbacks.CallbackList(  # outside the scope: Keras refuses some under parameter servers
        own_callbacks + _tensorboard(job, is_chief),
        model=trained.model,
        epochs=plan.epochs,
        steps=plan.steps_per_epoch,
        verbose=0,
    )
    handover = (
        SidecarCheckpointWriter(trained.model, run_dir, is_chief, plan.num_replicas)
        if job.distribution.num_evaluators
        else None
    )
    start = time.monotonic()
    with strategy.scope(), counter.reporting_step_on_error(), feed.explained(), preemption.deferring_exit():
        batches = plan.num_replicas * schedule.gradient_accumulation_steps
        by = strategy_table.learning_rate_factor(schedule.learning_rate_scaling, batches)
        before_step = learning_rate.scale(trained.optimizer, by, schedule.warmup_steps, not row.parameter_servers)
        gradients.clip(trained.optimizer, schedule.global_clipnorm)
        steps = _kind_of_steps(strategy)(trained, strategy, feed, schedule, before_step)
        callbacks_lib.check_same_everywhere(own_callbacks, steps.agree)
        trained.model.stop_training = False
        reporter.enter("on_train_begin")
        callbacks.on_train_begin()
        reporter.enter("restoring the saved state")
        checkpoints = Checkpoints(
            job.outputs.checkpoint_dir, job.recovery, _made_with(job, plan), is_chief, trained, own_callbacks
        )
        begin = checkpoints.find()
        if steps.agree(begin.step) != [begin.step]:
            raise ConfigurationError(
                f"checkpoint_dir: not all processes find the same saved state in {job.outputs.checkpoint_dir}; write a "
                "folder that all machines share"
            )
        steps.open(begin.step)
        counter.begin(begin.step, checkpoints.remark)
        epochs = EpochRunner(steps, schedule.steps_per_execution, callbacks, counter, profiler, checkpoints)
        metrics: dict[str, float] = {}
        atomic_files.choose_temporary_folder()
        for epoch in range(begin.epoch, plan.epochs):
            first = begin.step_of_epoch if epoch == begin.epoch else 0
            trained.reset_metrics()
            reporter.enter(f"on_epoch_begin of epoch {epoch + 1}")
            callbacks.on_epoch_begin(epoch)
            if epoch == begin.epoch:
                checkpoints.restore()
            epochs.run(epoch, first, plan.steps_per_epoch)
            metrics = as_floats(steps.metrics())
            if handover:
                handover.save(epoch)
            elif feed.has_evaluation:
                atomic_files.choose_temporary_folder()
                reporter.enter(f"the evaluation after epoch {epoch + 1}")
                trained.reset_metrics()
                metrics |= _named_val(epochs.evaluate())
            reporter.enter(f"on_epoch_end of epoch {epoch + 1}")
            callbacks.on_epoch_end(epoch, metrics)
            counter.report_if_due(metrics)
            if steps.agree(trained.model.stop_training)[0] > 0:
                break
        gradients.finalize(trained.optimizer, trained.model.trainable_variables)
        profiler.stop()
        seconds = time.monotonic() - start
        if handover:
            reporter.enter("waiting for the evaluator", limited=False)  # it has a limit of its own
            metrics |= _named_val(handover.finish())
        counter.report(metrics)
        reporter.enter("on_train_end")
        callbacks.on_train_end(metrics)
    return trained.model, TrainingResult(
        num_replicas=plan.num_replicas,
        global_batch_size=plan.global_batch_size,
        train_steps=counter.step,
        seconds=seconds,
        metrics=metrics,
    )


def _made_with(job: TrainingJob, plan: Plan) -> dict[str, Any]:
    """What a saved state depends on beside the run's inputs: another strategy may take it up where these are the same."""
    return {
        "variables": _how_divided(job.distribution),
        "global_batch_size": plan.global_batch_size,
        "steps_per_epoch": plan.steps_per_epoch,
    }


def _how_divided(distribution: Distribution) -> str:
    """How variables are kept, in words: a checkpoint of whole ones goes with any strategy that keeps them whole."""
    row = distribution.info
    if row.name == "model_parallel":
        return f"divided on the mesh {distribution.mesh or 'of all devices'}"
    if row.parameter_servers and distribution.partition_min_bytes:
        return f"divided among parameter servers (partition_min_bytes={distribution.partition_min_bytes})"
    return "whole"


def _kind_of_steps(strategy: tf.distribute.Strategy) -> type[StepRunner]:
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return CoordinatorStepRunner
    if isinstance(strategy, MeshStrategy):
        return MeshStepRunner
    return StepRunner


def _tensorboard(job: TrainingJob, is_chief: bool) -> list[tf.keras.callbacks.Callback]:
    # Vertex AI names a folder from which it streams into the TensorBoard instance of a job that has one. Source:
    # https://cloud.google.com/vertex-ai/docs/training/code-requirements#environment-variables
    folders = [job.outputs.model_run_dir, os.environ.get("AIP_TENSORBOARD_LOG_DIR")] if is_chief else []
    return [tf.keras.callbacks.TensorBoard(folder, write_graph=False, profile_batch=0) for folder in filter(None, folders)]


def _named_val(metrics: dict[str, float]) -> dict[str, float]:
    return {f"val_{name}": value for name, value in metrics.items()}
