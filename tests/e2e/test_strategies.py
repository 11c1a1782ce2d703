"""Tests every strategy from the command line to an evaluated model.

Only `strategy=` changes; the module stays the same.
"""

import re
from pathlib import Path

import pytest

from tfx_distribute.trainer_module.job import strategy_table

pytestmark = pytest.mark.e2e

CPU = ("accelerator_type=cpu",)
RULES = "layout_rules=dense/kernel = unsharded, model; dense_1/kernel = model, unsharded"


# Strategy -> other arguments, and the processes of the training.
CELLS = {
    "mirrored": (("accelerator_count=2", *CPU), {"chief-0"}),
    "central_storage": (("accelerator_count=2", *CPU), {"chief-0"}),
    "parameter_server": (("num_workers=2", *CPU), {"chief-0", "worker-0", "worker-1", "ps-0"}),
    "model_parallel": (("mesh=2x2", RULES, *CPU), {"chief-0"}),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Nodes independent of the strategy come from the cache after the first run."""
    return tmp_path_factory.mktemp("runs")


def run(command, root, pipeline, strategy, *more):
    said, _ = CELLS[strategy]
    parameters = [word for value in (f"strategy={strategy}", *said, *more) for word in ("-p", value)]
    return command("run", pipeline, "--root", root / f"{pipeline.parent.name}-{pipeline.stem}", *parameters)


def test_every_strategy_has_its_cells():
    """test_digits.py has `multi_worker_mirrored` and `one_device`."""
    assert set(strategy_table.STRATEGIES) - set(CELLS) == {"default", "one_device", "multi_worker_mirrored", "tpu"}


@pytest.mark.parametrize("strategy", sorted(set(CELLS) - {"mirrored"}))
def test_digits(command, request, root, strategy):
    """The pipeline's threshold is 0.95 on held-out digits; below, it exits with 3."""
    # Workers of parameter servers do not wait for each other: the gradients of a slow
    # one come late.
    epochs = 20 if strategy_table.STRATEGIES[strategy].parameter_servers else 10
    pipeline = request.config.rootpath / "examples" / "digits" / "pipeline.yaml"
    done = run(command, root, pipeline, strategy, f"epochs={epochs}", "learning_rate=0.005")
    assert done.code == 0, done.output
    assert re.search(rf"trained +{strategy}, ", done.output)
    assert re.search(r"SparseCategoricalAccuracy +0\.9[5-9]\d* +>= 0\.95 met", done.output)
    (logs,) = re.findall(r"^log +(/.*)/run.log$", done.output, re.M)
    assert {log.stem for log in Path(logs).glob("*-?.log")} == CELLS[strategy][1]


def test_digits_as_a_task_of_keras_3(command, request, root):
    pipeline = request.config.rootpath / "examples" / "digits" / "task.yaml"
    done = run(command, root, pipeline, "mirrored", "epochs=15", "learning_rate=0.005", "keras_version=3")
    assert done.code == 0, done.output
    assert re.search(r"SparseCategoricalAccuracy +0\.9[5-9]\d* +>= 0\.95 met", done.output)
