"""Tests which devices a process uses on a machine with two, or two pretended, GPUs."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
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
        factory._model_parallel(Distribution("model_parallel", mesh="2x2"))


def test_no_device_of_the_kind(monkeypatch):
    devices = tf.config.list_physical_devices

    def without_gpus(kind=None):
        return [device for device in devices(kind) if device.device_type != "GPU"]

    monkeypatch.setattr(tf.config, "list_physical_devices", without_gpus)
    with pytest.raises(ConfigurationError, match="^accelerator_type: GPUs are asked for, but TensorFlow sees only CPU:0"):
        factory._devices(Distribution("mirrored", accelerator_type="gpu", accelerator_count=2))
