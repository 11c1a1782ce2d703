"""Evaluates in a separate process while training continues.

After each epoch, the training processes save their weights for the evaluator and go on.
Both sides exchange files in a folder of the ModelRun: checkpoints, the metrics of each,
and finally a file that says which checkpoint was the last. The evaluator renews another
file for as long as it runs.
"""

import contextlib
import json
import os
import threading
import time
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import PeerLostError, describe_shortage
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingData, TrainingJob
from tfx_distribute.trainer_module.lifecycle import atomic_files, lease
from tfx_distribute.trainer_module.lifecycle.clock import RunningClock
from tfx_distribute.trainer_module.lifecycle.peer_loss import ChiefMonitor
from tfx_distribute.trainer_module.lifecycle.progress import Progress, Reporter
from tfx_distribute.trainer_module.training import keras_models, model_builder
from tfx_distribute.trainer_module.training.base_model import warm_start
from tfx_distribute.trainer_module.training.best_model import BestModel
from tfx_distribute.trainer_module.training.checkpoint import remove_others, save_and_discard
from tfx_distribute.trainer_module.training.keras_metrics import as_floats
from tfx_distribute.trainer_module.training.tensorboard_logs import skipping_if_full

POLL_SECONDS = 0.5
# An evaluator that is slower than training skips to the latest checkpoint.
MAX_CHECKPOINTS = 3
SIGN_SECONDS = 15.0  # between two signs of life of the evaluator
# How long the evaluator may show no sign of life before the chief stops waiting for its
# last metrics: enough for a new pod on a new machine.
SILENT_SECONDS = 600.0
_NUM_REPLICAS = "num_replicas"
_PREFIX = "epoch-"  # of the checkpoints
_FINISHED = "finished"
_NONE = -1  # number of the last checkpoint for an evaluator that is not waited for


def _exchange_folder(model_run_dir: str) -> str:
    # Each try has its own folder, so files of failed tries are ignored.
    return f"{model_run_dir}/evaluator/{os.environ.get(TRY, 'try')}"


def _life_file(model_run_dir: str) -> str:
    # Outside that folder: the chief of another try removes it.
    return f"{model_run_dir}/evaluator.alive"


class SidecarCheckpointWriter:
    """Hands the weights of the training processes over to the evaluator.

    If the processes of a strategy train in step, all of them have to make the same
    calls. Only the chief's files are read.

    Args:
      model: The model that is trained, built.
      model_run_dir: Folder of the ModelRun.
      is_chief: True in the chief.
      num_replicas: Replicas that train in step. The evaluator cannot count the devices
        of other machines.

    Attributes:
      remark: In the chief, why the evaluator does not get the last weights, or why
        `finish` has no metrics of it. Empty if there is nothing to say.
    """

    def __init__(self, model: tf.keras.Model, model_run_dir: str, is_chief: bool, num_replicas: int):
        self._is_chief = is_chief
        self._checkpoint = tf.train.Checkpoint(**keras_models.state(model))
        self._folder, self._life_file = _exchange_folder(model_run_dir), _life_file(model_run_dir)
        if is_chief:
            for earlier_folder in tf.io.gfile.glob(f"{model_run_dir}/evaluator/*"):
                tf.io.gfile.rmtree(earlier_folder)
            tf.io.gfile.makedirs(self._folder)
            atomic_files.write(f"{self._folder}/{_NUM_REPLICAS}", json.dumps(num_replicas))
        self._manager = self._make_manager(self._folder) if is_chief else None
        self._last_epoch = _NONE
        self.remark = ""

    def save(self, epoch: int) -> None:
        """Saves the weights for the evaluator, if there is space for them.

        Args:
          epoch: Number of the epoch that has ended, from 0.
        """
        self.remark, self._last_epoch = "", epoch
        if not self._manager:
            save_and_discard(lambda folder: self._make_manager(folder).save(checkpoint_number=epoch))
            return
        try:
            self._manager.save(checkpoint_number=epoch)
        except (tf.errors.OpError, OSError) as error:
            shortage = describe_shortage(error)
            if shortage is None:
                raise
            self.remark = f"the evaluator does not get epoch {epoch + 1}: {shortage}"
            remove_others(self._folder, _PREFIX, [path.rpartition("/")[2] for path in self._manager.checkpoints])

    def _make_manager(self, folder: str) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(self._checkpoint, folder, MAX_CHECKPOINTS, checkpoint_name=_PREFIX[:-1])

    def finish(self) -> dict[str, float] | None:
        """Tells the evaluator which checkpoint is the last, and waits for its metrics.

        Waits for as long as the evaluator shows that it is alive.

        Returns:
          In the chief, the metrics of the last checkpoint; None if the evaluator could
          not get it, or has shown no life for `SILENT_SECONDS`. In other processes, an
          empty dict at once.
        """
        if not self._is_chief:
            return {}
        # Makes space for what both sides still write. The evaluator skips the others.
        remove_others(self._folder, _PREFIX, [f"{_PREFIX}{self._last_epoch}"])
        metrics = None
        if self.remark:  # of the last `save`
            self.remark = "there was no space for the evaluator's last weights"
        elif shortage := _write_if_space(f"{self._folder}/{_FINISHED}", self._last_epoch):
            self.remark = shortage
        else:
            metrics = self._wait_for_metrics()
        if metrics is None:
            _write_if_space(f"{self._folder}/{_FINISHED}", _NONE)
        atomic_files.remove(self._life_file)
        remove_others(self._folder, _PREFIX, ())
        atomic_files.remove(f"{self._folder}/checkpoint")
        return metrics

    def _wait_for_metrics(self) -> dict[str, float] | None:
        """Returns the metrics of the last checkpoint; None without a sign of life."""
        clock = RunningClock(longest_gap=10.0)
        sign, seen_at = None, 0.0
        while (metrics := atomic_files.read(f"{self._folder}/metrics-{self._last_epoch}")) is None:
            latest_sign = atomic_files.read(self._life_file)
            if latest_sign != sign:
                sign, seen_at = latest_sign, clock.seconds()
            elif clock.seconds() - seen_at >= SILENT_SECONDS:
                self.remark = f"the evaluator has shown no sign of life for {SILENT_SECONDS:g} s"
                return None
            time.sleep(POLL_SECONDS)
        return dict(json.loads(metrics))


def _write_if_space(path: str, value: Any) -> str:
    """Writes a JSON document unless there is no space for it.

    Returns:
      An empty string, or what there is a shortage of.
    """
    try:
        atomic_files.write(path, json.dumps(value))
    except (tf.errors.OpError, OSError) as error:
        shortage = describe_shortage(error)
        if shortage is None:
            raise
        return shortage
    return ""


def wait_for_replicas(folder: str, chief_monitor: ChiefMonitor, task: ClusterTask) -> int:
    """Returns the number of replicas that train in step, once the chief has written it.

    Args:
      folder: The folder in which both sides exchange files.
      chief_monitor: Knows whether the chief is gone.
      task: The role of this process.

    Raises:
      PeerLostError: The chief is gone.
    """
    while (text := atomic_files.read(f"{folder}/{_NUM_REPLICAS}")) is None:
        if chief_monitor.has_gone():
            raise PeerLostError(f"{task} has lost the chief, which has not begun to train")
        time.sleep(POLL_SECONDS)
    return int(json.loads(text))


def _read_last_epoch(folder: str) -> int | None:
    """Returns the epoch of the last checkpoint; None while training goes on."""
    text = atomic_files.read(f"{folder}/{_FINISHED}")
    return None if text is None else int(json.loads(text))


def _show_life(path: str) -> None:
    """Starts a thread that shows the chief that this evaluator is alive.

    Args:
      path: Path or address of the file that it renews.
    """
    sign = lease.Lease(path)

    def renew() -> None:
        while True:
            with contextlib.suppress(OSError, tf.errors.OpError):  # the next one may succeed
                sign.take()
            time.sleep(SIGN_SECONDS)

    threading.Thread(target=renew, daemon=True, name="signs-of-life").start()


def run(job: TrainingJob, data: TrainingData, task: ClusterTask, reporter: Reporter) -> None:
    """Evaluates each checkpoint of the training processes, until the last one.

    Args:
      job: The training job.
      data: The job's data.
      task: The role of this process.
      reporter: Reports progress.

    Raises:
      PeerLostError: The chief is gone, but has not finished.
    """
    features = Features(data, example_functions.load(job.module))
    chief_monitor = ChiefMonitor(task)
    folder = _exchange_folder(job.outputs.model_run_dir)
    options = job.training_options
    strategy_info = job.distribution.info
    reporter.enter("waiting for the chief", limited=False)  # `ChiefMonitor` has a time limit itself
    num_replicas = wait_for_replicas(folder, chief_monitor, task)
    _show_life(_life_file(job.outputs.model_run_dir))
    plan = make_plan(options, data.train.num_examples, num_replicas, bool(strategy_info.fixed_batches))
    reporter.enter("build_model")
    model_adapter = model_builder.build(job, model_builder.make_context(job, features, plan, is_chief=False))
    required = features.select(model_adapter.required_features(features))
    input_pipeline = InputPipeline(data, required, options, job.input_options, plan, readers=1, batches=1)
    model_adapter.prepare(input_pipeline.zeros(keras_models.input_shapes(model_adapter.model)))
    # For what layers compute from weights once: checkpoints do not have it.
    warm_start.apply(job, model_adapter.model, model_adapter.optimizer, features.transform, tf.distribute.get_strategy())
    checkpoint = tf.train.Checkpoint(**keras_models.state(model_adapter.model))
    best_model = BestModel(job, plan, model_adapter.model, is_chief=True) if options.export_best else None
    eval_step = tf.function(lambda batch: model_adapter.eval_step(*batch))
    evaluated_epoch, summary_writer, shortage = -1, None, ""
    while (last_epoch := _read_last_epoch(folder)) is None or evaluated_epoch < last_epoch:
        latest = tf.train.latest_checkpoint(folder)
        epoch = int(latest.rpartition("-")[2]) if latest else -1
        if epoch <= evaluated_epoch:
            if chief_monitor.has_gone():
                if atomic_files.read(job.outputs.result_file) is not None:
                    return  # it had no space to write which checkpoint is the last
                raise PeerLostError(f"{task} has lost the chief, which has not finished")
            reporter.enter("waiting for the chief", limited=False)
            time.sleep(POLL_SECONDS)
            continue
        reporter.enter(f"the evaluation after epoch {epoch + 1}")
        try:
            checkpoint.restore(latest).expect_partial()
        except tf.errors.NotFoundError:
            continue  # a later one has replaced it
        model_adapter.reset_metrics()
        with input_pipeline.explaining_read_errors():
            batch_size = plan.global_batch_size // options.gradient_accumulation_steps
            for batch in input_pipeline.evaluation_part(0, 1, batch_size):
                eval_step(batch)
        metrics = as_floats(model_adapter.metrics(evaluated=True))
        with skipping_if_full():
            # Made here: it opens its file at once, and may find no space for it.
            summary_writer = summary_writer or tf.summary.create_file_writer(f"{job.outputs.model_run_dir}/validation")
            with summary_writer.as_default(step=epoch):
                for name, value in metrics.items():
                    tf.summary.scalar(f"epoch_{name}", value)
            summary_writer.flush()
        if best_model:
            step = min((epoch + 1) * plan.steps_per_epoch, plan.train_steps)
            best_model.offer({f"val_{name}": value for name, value in metrics.items()}, epoch, step)
        shortage = _write_if_space(f"{folder}/metrics-{epoch}", metrics)
        evaluated_epoch = epoch
        reporter.report(Progress("evaluate", step=epoch + 1, metrics=metrics, message=shortage))
    if shortage:
        write_when_space(folder, evaluated_epoch, metrics, chief_monitor, reporter)


def write_when_space(
    folder: str, epoch: int, metrics: dict[str, float], chief_monitor: ChiefMonitor, reporter: Reporter
) -> None:
    """Writes the last metrics once there is space, if the chief still waits for them.

    Args:
      folder: The folder in which both sides exchange files.
      epoch: Number of the epoch that they are of.
      metrics: The metrics.
      chief_monitor: Knows whether the chief is gone.
      reporter: Reports progress.
    """
    reporter.enter("waiting for space for the last metrics", limited=False)  # the chief's wait has a limit
    while epoch == _read_last_epoch(folder) and not chief_monitor.has_gone():
        if not _write_if_space(f"{folder}/metrics-{epoch}", metrics):
            return
        time.sleep(POLL_SECONDS)
