"""Trains with parameter servers: a coordinator schedules steps on other processes.

Each worker takes a step whenever it is free, independently of the others, on variables
that live on the parameter servers.
"""

import os
from dataclasses import replace

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import WORKER, ClusterTask, uses_accelerators
from tfx_distribute.trainer_module.job.training_job import Distribution, InputOptions
from tfx_distribute.trainer_module.liveness import cluster_peers
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.loop.step_timing import CallTime

# Each `train` or `evaluate` is split into up to this many calls for each worker, so
# that a slow worker delays the end by no more than its last call.
CALLS_PER_WORKER = 4
# Each call opens a dataset, which takes as long as many batches.
MIN_BATCHES = 32


def count_calls(num_batches: int, num_workers: int) -> int:
    """Returns the number of calls that a `train` or `evaluate` is split into."""
    per_worker = CALLS_PER_WORKER
    # Halves, since a third of most numbers of shards would read every shard.
    while per_worker > 1 and num_batches < num_workers * per_worker * MIN_BATCHES:
        per_worker //= 2
    return num_workers * per_worker


def input_options(options: InputOptions) -> InputOptions:
    """Returns the options of workers, which open the files again for each call.

    One shard after the other, so that a call begins at the shard of its first step.
    """
    return replace(options, cycle_length=1, cache="none")


class CoordinatorStepRunner(StepRunner):
    """Runs steps asynchronously on workers.

    All steps of a call to `train` or `evaluate` are done when it returns.
    """

    call_seconds = 5.0  # each call opens datasets, so there should be few

    @override
    def open(self, first_step: int) -> None:
        if self._model_adapter.model.run_eagerly:
            raise ConfigurationError(
                "module: the model is compiled with run_eagerly=True, but workers of parameter servers run graphs only; "
                "leave it out, or use another strategy"
            )
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)
        self._num_workers = cluster_peers.cluster_spec().num_tasks(WORKER)
        self._step = first_step
        self._train_part_function = tf.function(self._train_part)
        self._evaluate_part_function = tf.function(self._evaluate_part)
        self._begun_parts = tf.Variable(0, trainable=False, dtype=tf.int64)

    @override
    def train(self, num_steps: int) -> tuple[float, CallTime]:
        steps_per_call = max(1, num_steps // count_calls(num_steps, self._num_workers))
        num_full_calls, rest = divmod(num_steps, steps_per_call)
        results = []
        for steps in [steps_per_call] * num_full_calls + [rest] * (rest > 0):
            arguments = (tf.constant(self._step, tf.int64), tf.constant(steps))
            results.append(self._coordinator.schedule(self._train_part_function, args=arguments))
            self._step += steps
        self._coordinator.join()
        losses, times = zip(*(result.fetch() for result in results), strict=True)
        _, inputs, _ = zip(*times, strict=True)
        # The times of day are those of other machines, whose clocks may differ.
        return float(losses[-1]), CallTime(input=float(sum(inputs)) / self._num_workers)

    @override
    def evaluate(self, callbacks: tf.keras.callbacks.CallbackList | None = None) -> None:
        # Workers evaluate parts at the same time, so batches have no order, and batch
        # hooks are not called. `fit` does not call them here either.
        del callbacks
        num_batches = self._input_pipeline.eval_steps(num_replicas=1)
        num_parts = min(count_calls(num_batches, self._num_workers), num_batches)
        while True:
            self._begun_parts.assign(0)
            for part in range(num_parts):
                self._coordinator.schedule(self._evaluate_part_function, args=(tf.constant(part, tf.int64), num_parts))
            self._coordinator.join()
            # TensorFlow runs a part again whose worker was lost. The metrics may
            # already have some of its examples.
            if int(self._begun_parts) == num_parts:
                return
            self._model_adapter.reset_metrics()

    def _train_part(self, first_step: tf.Tensor, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs steps on the batches that these steps have on a single device."""
        dataset = self._input_pipeline.train(tf.distribute.InputContext(), first_step)
        options = tf.data.Options()
        # Both take longer than to read a call's examples.
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return self._train(iter(dataset.with_options(options)), num_steps)

    def _evaluate_part(self, part: tf.Tensor, num_parts: int) -> None:
        # Counted before anything else, so that no metric changes without it.
        with tf.control_dependencies([self._begun_parts.assign_add(1)]):
            for batch in self._input_pipeline.evaluation_part(part, num_parts):
                self._run(self.step.evaluate, batch)


def serve(task: ClusterTask, distribution: Distribution) -> None:
    """Serves the coordinator in a worker or a parameter server until it ends.

    Replaces `tf.distribute.Server.join`, which never returns.
    """
    cluster = cluster_peers.cluster_spec()
    # As many threads as may wait for each other. By default, there are only as many as
    # cores.
    threads = max(4, cluster.num_tasks(WORKER) + 1, os.cpu_count() or 1)
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    uses_gpu = distribution.accelerator_type != "cpu" and uses_accelerators(distribution, task)
    config.device_count["GPU"] = 1 if uses_gpu else 0
    server = tf.distribute.Server(cluster, job_name=task.role, task_index=task.index, protocol="grpc", config=config)
    cluster_peers.wait_until_chief_is_gone()
    del server
