"""Evaluates in a separate process while training continues.

After each epoch, the training processes save their weights for the evaluator and go on.
Both sides exchange checkpoints, and the metrics of each, in a folder of the ModelRun.
Each start of the training has its own folder, which a document announces: files of
earlier starts no longer count, and an evaluator that is still running switches to the
new folder. It renews a file for as long as it runs, and ends when the document says so.
"""

import contextlib
import json
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files, timeouts
from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import PeerLostError
from tfx_distribute.trainer_module.job.cluster import ClusterTask
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingData, TrainingJob
from tfx_distribute.trainer_module.keras import keras_models
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.liveness import lease
from tfx_distribute.trainer_module.liveness.peer_loss import ChiefMonitor
from tfx_distribute.trainer_module.loop import model_builder
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter
from tfx_distribute.trainer_module.state.base_model import warm_start
from tfx_distribute.trainer_module.state.best_model import BestModel
from tfx_distribute.trainer_module.state.checkpoint import remove_others, save_and_discard

# An evaluator that is slower than training skips to the latest checkpoint.
MAX_CHECKPOINTS = 3
_PREFIX = "epoch-"  # of the checkpoints


@dataclass(frozen=True)
class Exchange:
    """Announcement of the chief to the evaluator.

    Attributes:
      name: Name of the folder of this start of the training.
      num_replicas: Replicas that train in step. The evaluator cannot count the devices
        of other machines.
      is_over: True if the training has its result.
    """

    name: str
    num_replicas: int
    is_over: bool = False

    @staticmethod
    def read(model_run_dir: str) -> "Exchange | None":
        """Returns the latest announcement; None if there is none yet."""
        text = atomic_files.read(_announcement_file(model_run_dir))
        return None if text is None else Exchange(**json.loads(text))

    def write(self, model_run_dir: str) -> None:
        """Announces it."""
        atomic_files.write(_announcement_file(model_run_dir), json.dumps(asdict(self)))

    def folder(self, model_run_dir: str) -> str:
        """Returns the folder for checkpoints and metrics."""
        return f"{model_run_dir}/evaluator/{self.name}"


def _announcement_file(model_run_dir: str) -> str:
    return f"{model_run_dir}/evaluator.json"


def _life_file(model_run_dir: str) -> str:
    return f"{model_run_dir}/evaluator.alive"


class SidecarCheckpointWriter:
    """Hands the weights of the training processes over to the evaluator.

    If the processes of a strategy train in step, all of them have to make the same
    calls. Only the chief's files are read.

    Attributes:
      remark: In the chief, why `finish` has no metrics of the evaluator. Empty if it
        has.
    """

    def __init__(self, model: tf.keras.Model, model_run_dir: str, is_chief: bool, num_replicas: int):
        self._is_chief = is_chief
        self._checkpoint = tf.train.Checkpoint(**keras_models.state(model))
        exchange = Exchange(uuid.uuid4().hex, num_replicas)
        self._folder, self._life_file = exchange.folder(model_run_dir), _life_file(model_run_dir)
        if is_chief:
            earlier_folders = tf.io.gfile.glob(f"{model_run_dir}/evaluator/*")
            tf.io.gfile.makedirs(self._folder)
            exchange.write(model_run_dir)
            for folder in earlier_folders:
                with contextlib.suppress(OSError, tf.errors.OpError):  # an evaluator may still write there
                    tf.io.gfile.rmtree(folder)
        self._manager = self._make_manager(self._folder) if is_chief else None
        self._last_epoch = -1
        self.remark = ""

    def save(self, epoch: int) -> None:
        """Saves the weights for the evaluator after an epoch; the first one is 0."""
        self._last_epoch = epoch
        if self._manager:
            self._manager.save(checkpoint_number=epoch)
        else:
            save_and_discard(lambda folder: self._make_manager(folder).save(checkpoint_number=epoch))

    def _make_manager(self, folder: str) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(self._checkpoint, folder, MAX_CHECKPOINTS, checkpoint_name=_PREFIX[:-1])

    def finish(self) -> dict[str, float] | None:
        """Waits for the evaluator's metrics of the last checkpoint.

        Waits for as long as the evaluator shows that it is alive, and returns None if
        it has shown no life for long. Processes other than the chief get an empty dict
        at once.
        """
        if not self._is_chief:
            return {}
        # Makes space for what both sides still write. The evaluator skips the others.
        remove_others(self._folder, _PREFIX, [f"{_PREFIX}{self._last_epoch}"])
        metrics = self._wait_for_metrics()
        atomic_files.remove(self._life_file)
        remove_others(self._folder, _PREFIX, ())
        atomic_files.remove(f"{self._folder}/checkpoint")
        return metrics

    def _wait_for_metrics(self) -> dict[str, float] | None:
        """Returns the metrics of the last checkpoint; None without a sign of life."""
        sign, seen_at = None, time.monotonic()
        while (metrics := atomic_files.read(f"{self._folder}/metrics-{self._last_epoch}")) is None:
            latest_sign = atomic_files.read(self._life_file)
            if latest_sign != sign:
                sign, seen_at = latest_sign, time.monotonic()
            elif time.monotonic() - seen_at >= timeouts.EVALUATOR_SILENT_SECONDS:
                self.remark = f"the evaluator has shown no sign of life for {timeouts.EVALUATOR_SILENT_SECONDS:g} s"
                return None
            time.sleep(timeouts.EVALUATOR_POLL_SECONDS)
        return dict(json.loads(metrics))


def announce_end(model_run_dir: str) -> None:
    """Tells the evaluator that there is a result, if there is space to tell it."""
    with contextlib.suppress(OSError, tf.errors.OpError, ValueError):
        exchange = Exchange.read(model_run_dir)
        if exchange is not None:
            replace(exchange, is_over=True).write(model_run_dir)


def wait_for_exchange(model_run_dir: str, chief_monitor: ChiefMonitor, task: ClusterTask) -> Exchange | None:
    """Returns what the chief announces, once it has done so; None if all is over.

    Raises PeerLostError if the chief is gone.
    """
    started = time.monotonic()
    while (exchange := Exchange.read(model_run_dir)) is None or exchange.is_over:
        has_gone = chief_monitor.has_gone()
        # The chief of a training that is over may have been lost just then, and come
        # again.
        if exchange is not None and (has_gone or time.monotonic() - started > timeouts.EVALUATOR_SILENT_SECONDS):
            return None
        if has_gone:
            raise PeerLostError(f"{task} has lost the chief, which has not begun to train")
        time.sleep(timeouts.EVALUATOR_POLL_SECONDS)
    return exchange


def _show_life(path: str) -> None:
    """Renews a file in a thread, which shows the chief that this evaluator is alive."""
    sign = lease.Lease(path)

    def renew() -> None:
        while True:
            with contextlib.suppress(OSError, tf.errors.OpError):  # the next one may succeed
                sign.take()
            time.sleep(timeouts.EVALUATOR_SIGN_SECONDS)

    threading.Thread(target=renew, daemon=True, name="signs-of-life").start()


class _Evaluation:
    """Evaluates checkpoints of a model."""

    def __init__(self, job: TrainingJob, data: TrainingData, num_replicas: int):
        features = Features(data, example_functions.load(job.module))
        options = job.training_options
        self.plan = make_plan(options, data.train.num_examples, num_replicas, bool(job.distribution.info.fixed_batches))
        adapter = model_builder.build(job, model_builder.make_context(job, features, self.plan, is_chief=False))
        required = features.select(adapter.required_features(features), keras_models.input_specs(adapter.model))
        is_fixed = keras_models.fixed_batch_size(adapter.model) is not None
        self._input_pipeline = InputPipeline(data, required, options, job.input_options, self.plan, 1, 1, is_fixed)
        adapter.prepare(self._input_pipeline.zeros())
        # For what layers compute from weights once: checkpoints do not have it.
        warm_start.apply(job, adapter.model, adapter.optimizer, features.transform, tf.distribute.get_strategy())
        self._checkpoint = tf.train.Checkpoint(**keras_models.state(adapter.model))
        self._eval_step = tf.function(lambda batch: adapter.eval_step(*batch))
        self._adapter = adapter
        self._missing = ("", 0.0)  # checkpoint that cannot be found, and since when
        self._batch_size = self.plan.global_batch_size // options.gradient_accumulation_steps

    @property
    def model(self) -> tf.keras.Model:
        return self._adapter.model

    def restore(self, path: str) -> bool:
        """Restores a checkpoint; returns False if a later one has replaced it.

        Raises:
          tf.errors.NotFoundError: A part of it has been missing for long.
        """
        try:
            self._checkpoint.restore(path).expect_partial()
        except tf.errors.NotFoundError:
            now = time.monotonic()
            self._missing = self._missing if self._missing[0] == path else (path, now)
            if now - self._missing[1] > timeouts.CHECKPOINT_PART_SECONDS:
                raise
            return False
        return True

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the restored checkpoint."""
        self._adapter.reset_metrics()
        with self._input_pipeline.explaining_read_errors():
            for batch in self._input_pipeline.evaluation_part(0, 1, self._batch_size):
                self._eval_step(batch)
        return as_floats(self._adapter.metrics(evaluated=True))


def run(job: TrainingJob, data: TrainingData, task: ClusterTask, reporter: Reporter) -> None:
    """Evaluates checkpoints of the training processes, until there is a result.

    Raises PeerLostError if the chief is gone, but has not finished.
    """
    chief_monitor = ChiefMonitor(task)
    model_run_dir = job.outputs.model_run_dir
    reporter.enter("waiting for the chief", limited=False)  # `ChiefMonitor` has a time limit itself
    exchange = wait_for_exchange(model_run_dir, chief_monitor, task)
    if exchange is None:
        return
    _show_life(_life_file(model_run_dir))
    reporter.enter("build_model")
    evaluation = _Evaluation(job, data, exchange.num_replicas)
    best_model = BestModel(job, evaluation.plan, evaluation.model, True) if job.training_options.export_best else None
    summary_writer = tf.summary.create_file_writer(f"{model_run_dir}/validation")
    evaluated_epoch = -1
    while not (latest_exchange := Exchange.read(model_run_dir) or exchange).is_over:
        if latest_exchange != exchange:
            exchange, evaluated_epoch = latest_exchange, -1
        latest = tf.train.latest_checkpoint(exchange.folder(model_run_dir))
        epoch = int(latest.rpartition("-")[2]) if latest else -1
        if epoch <= evaluated_epoch or not evaluation.restore(latest):
            if chief_monitor.has_gone():
                if atomic_files.read(job.outputs.result_file) is not None:
                    return  # it had no space to say so
                raise PeerLostError(f"{task} has lost the chief, which has not finished")
            reporter.enter("waiting for the chief", limited=False)
            time.sleep(timeouts.EVALUATOR_POLL_SECONDS)
            continue
        reporter.enter(f"the evaluation after epoch {epoch + 1}")
        metrics = evaluation.evaluate()
        with summary_writer.as_default(step=epoch):
            for name, value in metrics.items():
                tf.summary.scalar(f"epoch_{name}", value)
        summary_writer.flush()
        if best_model:
            step = min((epoch + 1) * evaluation.plan.steps_per_epoch, evaluation.plan.train_steps)
            best_model.offer({f"val_{name}": value for name, value in metrics.items()}, epoch, step)
        with contextlib.suppress(tf.errors.NotFoundError):  # the chief has begun again, and has removed the folder
            atomic_files.write(f"{exchange.folder(model_run_dir)}/metrics-{epoch}", json.dumps(metrics))
        evaluated_epoch = epoch
        reporter.report(Progress("evaluate", step=epoch + 1, metrics=metrics))
