"""A process that evaluates beside the training ones: they leave it their weights after each epoch and go on.

Both sides meet in a folder of the ModelRun: checkpoints, the metrics of each, and at last a note that there will be no more.
"""

import json
import os
import time

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import PeerLostError, TrainingError
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import TrainingData, TrainingJob
from tfx_distribute.trainer_module.lifecycle import atomic_files
from tfx_distribute.trainer_module.lifecycle.peer_loss import ChiefMonitor
from tfx_distribute.trainer_module.lifecycle.progress import Progress, Reporter
from tfx_distribute.trainer_module.training import model_builder
from tfx_distribute.trainer_module.training.checkpoint import discard
from tfx_distribute.trainer_module.training.model_adapters import as_floats

POLL_SECONDS = 0.5
KEEP = 3  # checkpoints; an evaluator that is slower than training skips to the latest
LAST_SECONDS = 1800.0  # that the chief waits for the evaluation of its last epoch
_NUM_REPLICAS = "num_replicas"


def _folder(model_run_dir: str) -> str:
    # Of this try: what one that died has left is nobody's business.
    return f"{model_run_dir}/evaluator/{os.environ.get(TRY, 'try')}"


class SidecarCheckpointWriter:
    """The training side. Every process of a strategy in step has to do the same; only the chief's files are read.

    Args:
      model: The model that is trained.
      model_run_dir: Folder of the ModelRun.
      is_chief: Whether this is the chief.
      num_replicas: Replicas that train in step. The evaluator cannot count the devices of other machines.
    """

    def __init__(self, model: tf.keras.Model, model_run_dir: str, is_chief: bool, num_replicas: int):
        self._is_chief = is_chief
        self._checkpoint = tf.train.Checkpoint(model=model)
        self._folder = _folder(model_run_dir)
        if is_chief:
            for earlier in tf.io.gfile.glob(f"{model_run_dir}/evaluator/*"):
                tf.io.gfile.rmtree(earlier)
            tf.io.gfile.makedirs(self._folder)
            atomic_files.write(f"{self._folder}/{_NUM_REPLICAS}", json.dumps(num_replicas))
        self._manager = self._manager_in(self._folder) if is_chief else None
        self._last = -1

    def save(self, epoch: int) -> None:
        """Leaves the weights to the evaluator."""
        if self._manager:
            self._manager.save(checkpoint_number=epoch)
        else:
            discard(lambda folder: self._manager_in(folder).save(checkpoint_number=epoch))
        self._last = epoch

    def _manager_in(self, folder: str) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(self._checkpoint, folder, KEEP, checkpoint_name="epoch")

    def finish(self) -> dict[str, float]:
        """Says that there will be no more weights.

        Returns:
          On the chief, the metrics of the last ones, once the evaluator has them.

        Raises:
          TrainingError: It has not, in `LAST_SECONDS`.
        """
        if not self._is_chief:
            return {}
        atomic_files.write(f"{self._folder}/finished", json.dumps(self._last))
        deadline = time.monotonic() + LAST_SECONDS
        while (metrics := atomic_files.read(f"{self._folder}/metrics-{self._last}")) is None:
            if time.monotonic() > deadline:
                raise TrainingError(f"the evaluator has not evaluated the last epoch within {LAST_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        for file in tf.io.gfile.glob([f"{self._folder}/epoch-*", f"{self._folder}/checkpoint"]):
            tf.io.gfile.remove(file)
        return dict(json.loads(metrics))


def wait_for_replicas(folder: str, chief: ChiefMonitor, task: ClusterTask) -> int:
    """Returns the number of replicas that train in step, once the chief has written it.

    Args:
      folder: Where the two sides meet.
      chief: Knows if the chief is gone.
      task: Who this process is.

    Raises:
      PeerLostError: The chief is gone.
    """
    while (text := atomic_files.read(f"{folder}/{_NUM_REPLICAS}")) is None:
        if chief.has_gone():
            raise PeerLostError(f"{task} has lost the chief, which has not begun to train")
        time.sleep(POLL_SECONDS)
    return int(json.loads(text))


def run(job: TrainingJob, data: TrainingData, task: ClusterTask, reporter: Reporter) -> None:
    """Evaluates whatever the training processes leave, until there will be no more.

    Args:
      job: What is trained.
      data: The job's data.
      task: Who this process is.
      reporter: Where to say how far it is.

    Raises:
      PeerLostError: The chief is gone, though it has not finished.
    """
    features = Features(data)
    chief = ChiefMonitor(task)
    folder = _folder(job.outputs.model_run_dir)
    row = job.distribution.info
    reporter.enter("waiting for the chief", limited=False)  # `ChiefMonitor` has a limit of its own
    replicas = wait_for_replicas(folder, chief, task)
    plan = make_plan(job.schedule, data.train.num_examples, replicas, bool(row.fixed_batches))
    reporter.enter("build_model")
    evaluated = model_builder.build(job, model_builder.make_context(job, features, plan, is_chief=False))
    read = features.select(evaluated.reads(set(features.inputs())))
    feed = InputPipeline(data, read, job.schedule, job.reading, plan, readers=1, batches=1)
    evaluated.prepare(feed.zeros())
    checkpoint = tf.train.Checkpoint(model=evaluated.model)
    writer = tf.summary.create_file_writer(f"{job.outputs.model_run_dir}/validation")
    step = tf.function(lambda batch: evaluated.eval_step(*batch))
    done = -1
    while (finished := atomic_files.read(f"{folder}/finished")) is None or done < json.loads(finished):
        latest = tf.train.latest_checkpoint(folder)
        epoch = int(latest.rpartition("-")[2]) if latest else -1
        if epoch <= done:
            if chief.has_gone():
                raise PeerLostError(f"{task} has lost the chief, which has not finished")
            reporter.enter("waiting for the chief", limited=False)
            time.sleep(POLL_SECONDS)
            continue
        reporter.enter(f"the evaluation after epoch {epoch + 1}")
        try:
            checkpoint.restore(latest).expect_partial()
        except tf.errors.NotFoundError:
            continue  # a later one has come, and this one has gone
        evaluated.reset_metrics()
        with feed.explained():
            for batch in feed.evaluation_part(0, 1, plan.global_batch_size // job.schedule.gradient_accumulation_steps):
                step(batch)
        metrics = as_floats(evaluated.metrics())
        with writer.as_default(step=epoch):
            for name, value in metrics.items():
                tf.summary.scalar(f"epoch_{name}", value)
        writer.flush()
        atomic_files.write(f"{folder}/metrics-{epoch}", json.dumps(metrics))
        done = epoch
        reporter.report(Progress("evaluate", step=epoch + 1, metrics=metrics))
