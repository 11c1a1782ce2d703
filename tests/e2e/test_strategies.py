"""Tests strategies from the command line to an evaluated model.

Only `strategy=` changes; the module stays the same.
"""

import re

import pytest

from tfx_distribute.trainer_module.job import strategy_table

pytestmark = pytest.mark.e2e

ARGUMENTS = {
    "central_storage": ("accelerator_count=2",),
    "model_parallel": ("mesh=2x2", "layout_rules=dense/kernel = unsharded, model; dense_1/kernel = model, unsharded"),
}
# Those of test_digits.py, and of test_examples.py, whose recommendation has servers.
ELSEWHERE = {"default", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Nodes independent of the strategy come from the cache after the first run."""
    return tmp_path_factory.mktemp("runs")


def run(command, request, root, file, *parameters):
    """Runs the digits; below their threshold on held-out ones, it exits with 3."""
    pipeline = request.config.rootpath / "examples" / "digits" / file
    parameters = ("learning_rate=0.005", "accelerator_type=cpu", *parameters)
    done = command("run", pipeline, "--root", root / file, *(word for value in parameters for word in ("-p", value)))
    assert done.code == 0, done.output
    assert re.search(r"SparseCategoricalAccuracy +0\.9[5-9]\d* +>= 0\.95 met", done.output)
    return done.output


def test_every_strategy_is_run_somewhere():
    assert set(strategy_table.STRATEGIES) - {"tpu"} == ELSEWHERE | set(ARGUMENTS)


@pytest.mark.parametrize("strategy", ARGUMENTS)
def test_digits(command, request, root, strategy):
    output = run(command, request, root, "pipeline.yaml", f"strategy={strategy}", *ARGUMENTS[strategy], "epochs=10")
    assert re.search(rf"trained +{strategy}, ", output)


def test_digits_as_a_task_of_keras_3(command, request, root):
    run(command, request, root, "task.yaml", "strategy=mirrored", "accelerator_count=2", "epochs=15", "keras_version=3")
