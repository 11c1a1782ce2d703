"""Tests TPU connections without a TPU.

They use TensorFlow's own error, and a fake that records the calls for a TPU.
"""

import socket
import subprocess
import sys

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import factory, tpu


def test_machine_without_a_tpu_says_so_in_one_sentence():
    with pytest.raises(
        ConfigurationError, match=r"^tpu: this machine has no TPU that TensorFlow can use \(.+\); build"
    ) as said:
        tpu.connect("local")
    assert "\n" not in str(said.value)
    assert f"TensorFlow {tf.__version__}; libtpu, the driver, is not installed" in str(said.value)


CONNECT = """
import os, sys
from tfx_distribute.trainer_module import errors; from tfx_distribute.trainer_module.strategies import tpu
try:
    tpu.connect(sys.argv[1], seconds=1)
except errors.ConfigurationError as error:
    print(error, flush=True)
os._exit(0)  # TensorFlow is still waiting
"""


def test_address_where_nobody_answers_is_not_waited_for_without_end():
    with socket.socket() as silent:  # accepts connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        connect = [sys.executable, "-c", CONNECT, address]
        said = subprocess.run(connect, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.startswith(f"tpu: there is no TPU at '{address}' (no answer within 1 s); write the name or grpc:// address")


@pytest.mark.e2e
def test_training_without_a_tpu_ends_with_that_sentence(cluster):
    with pytest.raises(TrainingError, match=r"^tpu: this machine has no TPU that TensorFlow can use \(.+\); build") as said:
        cluster.train(Distribution("tpu"))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("local", ["resolver local", "initialize", "strategy"]),  # on a TPU VM
        ("my-tpu", ["resolver my-tpu", "connect", "initialize", "strategy"]),
        ("grpc://10.0.0.2:8470", ["resolver grpc://10.0.0.2:8470", "connect", "initialize", "strategy"]),
    ],
)
def test_calls_in_the_order_of_the_guide(monkeypatch, name, calls):
    """Checks the order: resolver, connection if remote, initialization, strategy.

    Source: https://www.tensorflow.org/guide/tpu
    """
    made = []

    class Resolver:
        def __init__(self, tpu):
            made.append(f"resolver {tpu}")

    def record(call):
        def recorded(resolver):
            assert isinstance(resolver, Resolver)
            made.append(call)
            return call

        return recorded

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", Resolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", record("connect"))
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", record("initialize"))
    monkeypatch.setattr(tf.distribute, "TPUStrategy", record("strategy"))
    monkeypatch.setattr(factory, "_current", None)
    assert factory.create(Distribution("tpu", tpu=name)) == "strategy"
    assert made == calls
