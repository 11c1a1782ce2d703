"""Defines the fixtures of the tests on a GPU.

These tests need a Python with TensorFlow, pytest, pytest-timeout and the packages that
`trainer_module` imports, but not TFX: `make gpu-test`. With `--rehearse` they run on
the CPU, in place of each GPU a logical CPU device.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Numbers of the GPU are compared with those of the CPU, so it may not round its factors
# to TensorFloat-32. Two processes share one GPU.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import numpy as np
import pytest
import tensorflow as tf
from training import TrainingCluster

from tfx_distribute.components.launchers.local import fork_client
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)

FOLDER = Path(__file__).parent
_SCHEMA = """
feature { name: "image" type: FLOAT presence { min_fraction: 1 }
          shape { dim { size: 8 } dim { size: 8 } dim { size: 1 } } }
feature { name: "word" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rehearse", action="store_true", help="use logical devices of the CPU in place of GPUs")


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Returns the kind of device under test: `gpu`, or `cpu` in a rehearsal."""
    if request.config.getoption("rehearse"):
        return "cpu"
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU; --rehearse uses the CPU in its place")
    return "gpu"


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    """Returns examples whose label depends on a small image and on a word."""
    folder, random = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)

    def write(name: str, num_shards: int) -> Split:
        files = tuple(str(folder / f"{name}-{shard:05d}-of-{num_shards:05d}") for shard in range(num_shards))
        for file in files:
            with tf.io.TFRecordWriter(file) as writer:
                for _ in range(256):
                    image, word = random.random(64), random.integers(50)
                    label = (int(image.sum() > 32) * 5 + word) % 10
                    features = {
                        "image": tf.train.Feature(float_list=tf.train.FloatList(value=image)),
                        "word": tf.train.Feature(int64_list=tf.train.Int64List(value=[word])),
                        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                    }
                    writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
        return Split(files, 256 * num_shards, sum(os.path.getsize(file) for file in files), sharded=True)

    schema = folder / "schema.pbtxt"
    schema.write_text(_SCHEMA)
    return TrainingData(write("train", 8), write("eval", 2), label="label", transform_graph=None, schema=str(schema))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, kind: str) -> Iterator[Callable[..., fork_client.ForkServer]]:
    """Returns a function that starts a fork server once for each kind of arguments."""
    started: dict[tuple[int, bool], fork_client.ForkServer] = {}

    def start(keras_version: int = 2, halved: bool = False) -> fork_client.ForkServer:
        halved = halved and kind == "gpu"  # the CPU has as many logical devices as it is asked for
        if (keras_version, halved) not in started:
            with pytest.MonkeyPatch.context() as patched:
                if halved:
                    patched.setattr(
                        "tfx_distribute.components.fork_client.module_command",
                        lambda _: [sys.executable, str(FOLDER / "halved_gpu.py")],
                    )
                server = fork_client.ForkServer(tmp_path_factory.mktemp("server") / "log", keras_version)
            server.wait_ready()
            started[keras_version, halved] = server
        return started[keras_version, halved]

    yield start
    for server in started.values():
        server.close()


@pytest.fixture(scope="session")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, shards: TrainingData, servers: Callable[..., fork_client.ForkServer]
) -> Callable[..., TrainingCluster]:
    """Returns a function that makes a cluster; its arguments are those of `servers`.

    Its processes get the first GPU. The job takes 60 steps of 64 examples over all
    replicas.
    """

    def make(keras_version: int = 2, halved: bool = False) -> TrainingCluster:
        folder = tmp_path_factory.mktemp("training")
        job = TrainingJob(
            module=UserModule("model.build_model", (str(FOLDER),)),
            data=shards,
            distribution=Distribution(accelerator_type="cpu"),
            training_options=TrainingOptions(64, train_steps=60, keras_version=keras_version),
            outputs=Outputs("", str(folder / "run"), str(folder / "result.json")),
        )
        return TrainingCluster(job, folder, servers(keras_version, halved), gpus=("0",))

    return make
