"""Training with parameter servers: a coordinator that hands out steps, and the processes that serve it.

Workers take steps whenever they are free, each by itself, on variables that live on the parameter servers.
"""

import os
import time

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.job.cluster import WORKER, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.lifecycle.peer_loss import ChiefMonitor, cluster_spec
from tfx_distribute.trainer_module.training.step_runner import StepRunner

CALLS_PER_WORKER = 4  # of the steps that are asked for at once: a worker that is slow holds up no more than its last call


class CoordinatorStepRunner(StepRunner):
    """`StepRunner` that workers take when they are free: asynchronously, though all of a call's are done when it returns."""

    @override
    def open(self, first_step: int) -> None:
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._num_workers = cluster_spec().num_tasks(WORKER)

        def of_worker() -> tf.data.Dataset:
            # Of a worker that comes back, too: it takes up its own share again.
            number = tf.distribute.coordinator.experimental_get_current_worker_index()
            context = tf.distribute.InputContext(self._num_workers, tf.cast(number, tf.int64))
            return self._feed.train(context, first_step)

        self._training = iter(self._coordinator.create_per_worker_dataset(of_worker))
        self._evaluate_part_function = tf.function(self._evaluate_part)

    @override
    def train(self, num_steps: int) -> float:
        each = max(1, num_steps // (CALLS_PER_WORKER * self._num_workers))
        calls = [each] * (num_steps // each) + [num_steps % each] * (num_steps % each > 0)
        losses = [
            self._coordinator.schedule(self._train_function, args=(self._training, tf.constant(steps))) for steps in calls
        ]
        self._coordinator.join()
        return float(losses[-1].fetch())

    @override
    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        del callbacks  # workers evaluate parts at the same time: there is no order of batches, nor has `fit` one here
        parts = CALLS_PER_WORKER * self._num_workers
        for part in range(parts):
            self._coordinator.schedule(self._evaluate_part_function, args=(tf.constant(part, tf.int64), parts))
        self._coordinator.join()

    def _evaluate_part(self, part: tf.Tensor, parts: int) -> None:
        for batch in self._feed.evaluation_part(part, parts, self._feed.options.per_replica_batch_size):
            self._strategy.run(self._eval_step, args=(batch,))


def serve(task: ClusterTask, distribution: Distribution) -> None:
    """Does what the coordinator tells this process, until that one has come and gone.

    `tf.distribute.Server.join` would never return.

    Args:
      task: Who this process is in the cluster of its TF_CONFIG.
      distribution: What the pipeline's parameters ask for.

    Raises:
      TrainingError: No coordinator came.
    """
    cluster = cluster_spec()
    # As many threads as may wait for each other: by default there are no more than cores.
    threads = max(4, cluster.num_tasks(WORKER) + 1, os.cpu_count() or 1)
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    no_gpu = distribution.accelerator_type == "cpu" or not uses_accelerators(distribution, task)
    config.device_count["GPU"] = 0 if no_gpu else 1
    server = tf.distribute.Server(cluster, job_name=task.role, task_index=task.index, protocol="grpc", config=config)
    chief = ChiefMonitor(task)
    while not chief.has_gone():
        time.sleep(1.0)
    del server
