"""Tests how the coordinator of parameter servers divides its work."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.loop import coordinator_steps


@pytest.mark.parametrize(
    ("num_batches", "num_workers", "calls"),
    [
        (1, 1, 1),
        (63, 1, 1),
        (64, 1, 2),
        (127, 2, 2),
        (128, 2, 4),
        (256, 2, 8),
        (10**6, 3, 12),
    ],
)
def test_short_work_has_few_calls(num_batches, num_workers, calls):
    assert coordinator_steps.count_calls(num_batches, num_workers) == calls


class Model:
    """Counts the examples that it evaluates; also stands for the step of a replica."""

    model = SimpleNamespace(run_eagerly=False)

    def __init__(self):
        self.count = tf.Variable(0)

    def evaluate(self, batch):
        self.count.assign_add(tf.size(batch[0]))

    def reset_metrics(self):
        self.count.assign(0)


class Pipeline:
    """Has ten examples to evaluate on, in two parts."""

    def eval_steps(self, num_replicas):
        return 5

    def evaluation_part(self, part, parts):
        return tf.data.Dataset.range(10).shard(parts, part).batch(2).map(lambda batch: (batch,))


class Coordinator:
    """Runs what is scheduled, and again if it loses the worker that ran it."""

    lost = 0  # workers that are lost at the end of a part

    def __init__(self, strategy):
        del strategy

    def schedule(self, function, args):
        if Coordinator.lost and int(args[0]) == 1:
            Coordinator.lost -= 1
            function(*args)
        function(*args)

    def join(self):
        pass


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(tf.distribute.coordinator, "ClusterCoordinator", Coordinator)
    monkeypatch.setattr(coordinator_steps.cluster_peers, "cluster_spec", lambda: SimpleNamespace(num_tasks=lambda _: 2))
    runner = coordinator_steps.CoordinatorStepRunner.__new__(coordinator_steps.CoordinatorStepRunner)
    runner._input_pipeline = Pipeline()
    runner._model_adapter = runner.step = Model()
    runner._strategy = tf.distribute.get_strategy()
    runner.open(0)
    return runner


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_evaluation_that_loses_a_worker_is_repeated(runner, monkeypatch, lost):
    """Otherwise, the examples of the part that ran twice would count twice."""
    monkeypatch.setattr(Coordinator, "lost", lost)
    for _ in range(2):
        runner._model_adapter.reset_metrics()
        runner.evaluate()
        assert int(runner._model_adapter.count) == 10
