"""Tests how strategies are made, with pretended GPUs, without any, and on a TPU."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, REQUESTED_GPUS, ClusterTask
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import factory


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    """Returns the list of visible GPUs.

    No call reaches TensorFlow's runtime, which this process is already using.
    """
    seen: list[str] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["first", "second"] if kind == "GPU" else ["cpu"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda devices, kind: seen.extend(devices))
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda device, parts: seen.append(len(parts)))
    return seen


@pytest.mark.parametrize(
    ("distribution", "devices", "left"),
    [
        (Distribution("mirrored"), ["GPU:0", "GPU:1"], ["first", "second"]),
        (Distribution("mirrored", accelerator_count=1), ["GPU:0"], ["first"]),
        (Distribution("one_device"), ["GPU:0"], ["first"]),
        (Distribution("mirrored", accelerator_type="cpu", accelerator_count=3), ["CPU:0", "CPU:1", "CPU:2"], [3]),
        (Distribution("model_parallel", mesh="1x2"), ["GPU:0", "GPU:1"], ["first", "second"]),
        (Distribution("model_parallel", mesh="2x2", accelerator_type="cpu"), [f"CPU:{n}" for n in range(4)], [4]),
    ],
)
def test_devices_of_a_process(taken, distribution, devices, left):
    assert factory._devices(distribution) == devices
    assert taken == left


def test_too_few_devices(taken):
    message = "accelerator_count: 3 GPUs are asked for, but this process sees GPU:0 to GPU:1; write accelerator_count=2"
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        factory._devices(Distribution("mirrored", accelerator_count=3))


def test_too_few_devices_for_a_mesh(taken):
    with pytest.raises(ConfigurationError, match="^mesh: 2x2 is 4 devices, but this process has 2; write a mesh of 2, such"):
        factory.create(Distribution("model_parallel", mesh="2x2"))


def test_no_device_of_the_kind(monkeypatch):
    devices = tf.config.list_physical_devices

    def without_gpus(kind=None):
        return [device for device in devices(kind) if device.device_type != "GPU"]

    monkeypatch.setattr(tf.config, "list_physical_devices", without_gpus)
    with pytest.raises(ConfigurationError, match="^accelerator_type: GPUs are asked for, but TensorFlow sees only CPU:0"):
        factory._devices(Distribution("mirrored", accelerator_type="gpu", accelerator_count=2))


without_gpus = pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")


@without_gpus
def test_gpus_that_a_launcher_divides_are_counted():
    message = "^accelerator: chief was given 2 GPUs, .*, or write accelerator_type=cpu to train on the CPU$"
    with pytest.raises(ConfigurationError, match=message):
        factory.check_requested_gpus(
            Distribution("one_device"), CHIEF_TASK, {REQUESTED_GPUS: "4", "CUDA_VISIBLE_DEVICES": "0,1"}
        )


@pytest.mark.parametrize(
    ("distribution", "task", "environment"),
    [
        (Distribution("one_device"), CHIEF_TASK, {}),
        (Distribution("one_device", accelerator_type="cpu"), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("mirrored", accelerator_type="cpu"), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("parameter_server", num_workers=2), CHIEF_TASK, {REQUESTED_GPUS: "1"}),
        (Distribution("parameter_server", num_workers=2), ClusterTask("ps", 0), {REQUESTED_GPUS: "1"}),
        (Distribution("one_device"), CHIEF_TASK, {REQUESTED_GPUS: "1", "CUDA_VISIBLE_DEVICES": ""}),
    ],
    ids=["none were given", "the CPU is asked for", "CPUs are named", "coordinator", "parameter server", "hidden from it"],
)
def test_a_process_that_may_use_the_cpu(distribution, task, environment):
    factory.check_requested_gpus(distribution, task, environment)


@without_gpus
@pytest.mark.parametrize(
    ("has_cuda", "remedy"), [(True, "check that LD_LIBRARY_PATH names"), (False, "build the image with --build-arg ")]
)
def test_the_remedy_fits_what_is_missing(has_cuda, remedy, monkeypatch):
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: has_cuda)
    assert remedy in factory._describe_devices()


class Own(tf.distribute.OneDeviceStrategy):
    """A strategy that a module defines."""


@pytest.mark.parametrize("make", [*factory._STRATEGY_CLASSES, lambda: Own("CPU:0")])
def test_strategies_are_refused_within_the_block(make):
    with (
        factory.refusing_own_strategies("m.run_fn"),
        pytest.raises(ConfigurationError, match=r"^module: m.run_fn made a \w+ of its own \(.*test_factory.py, line \d+\)"),
    ):
        make()
    assert Own("CPU:0").num_replicas_in_sync == 1


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("local", ["resolver local", "initialize", "strategy"]),  # on a TPU VM
        ("my-tpu", ["resolver my-tpu", "connect", "initialize", "strategy"]),
        ("grpc://10.0.0.2:8470", ["resolver grpc://10.0.0.2:8470", "connect", "initialize", "strategy"]),
    ],
)
def test_calls_for_a_tpu_are_in_the_order_of_the_guide(monkeypatch, name, calls):
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
