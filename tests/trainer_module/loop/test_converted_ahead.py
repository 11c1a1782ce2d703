"""Checks that forked training processes need not convert the loop with AutoGraph."""

import pytest
from training import EXAMPLES

from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

MODULE = """
import os
import tensorflow as tf
from tensorflow.python.autograph.pyct import transpiler
from {loop} import build_model

transform = transpiler.PyToPy.transform_function

def record(self, function, context):
    if not self._cache.has(function, self.get_caching_key(context)):
        with open(os.path.join(os.path.dirname(__file__), "converted"), "a") as file:
            print(f"{{function.__module__}}.{{function.__qualname__}}", file=file)
    return transform(self, function, context)

transpiler.PyToPy.transform_function = record
"""


@pytest.mark.parametrize(
    ("loop", "keras_version", "distribution"),
    [
        ("model", 2, Distribution("multi_worker_mirrored", accelerator_type="cpu", num_workers=2)),
        ("model", 3, Distribution()),
        ("task", 2, Distribution("model_parallel", mesh="2x1", accelerator_type="cpu")),
    ],
)
def test_a_forked_process_converts_no_function_of_the_loop(cluster, request, loop, keras_version, distribution):
    """From the user's module to the end of the process, exports included."""
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")
    (cluster.folder / "recording.py").write_text(MODULE.format(loop=loop))
    cluster.exporting().train(
        distribution,
        TrainingOptions(32, train_steps=2, keras_version=keras_version),
        module=UserModule("recording.build_model", (str(cluster.folder), str(EXAMPLES / "digits"))),
    )
    converted = (cluster.folder / "converted").read_text().splitlines()
    assert converted, "functions of TensorFlow and of the user's task"
    # Functions in functions have to be converted in each process.
    assert [name for name in converted if "<locals>" not in name and not name.startswith("task.")] == []
    assert [name for name in converted if name.startswith("tfx_distribute.")] == []
