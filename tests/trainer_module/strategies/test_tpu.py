"""Tests the calls for a TPU without one."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import factory


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
