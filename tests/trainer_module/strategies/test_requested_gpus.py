"""Tests what a process says that was given GPUs and sees none."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK, REQUESTED_GPUS, ClusterTask
from tfx_distribute.trainer_module.job.training_job import Distribution
from tfx_distribute.trainer_module.strategies import requested_gpus

without_gpus = pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")


@without_gpus
@pytest.mark.parametrize("distribution", [Distribution("one_device"), Distribution("mirrored"), Distribution("default")])
def test_a_process_that_was_given_gpus_does_not_train_on_the_cpu(distribution):
    with pytest.raises(ConfigurationError) as raised:
        requested_gpus.check(distribution, CHIEF_TASK, {REQUESTED_GPUS: "2"})
    message = str(raised.value)
    assert message.startswith("accelerator: chief was given 2 GPUs, but TensorFlow sees only CPU:0, and ")
    assert message.endswith("or write accelerator_type=cpu to train on the CPU")


@without_gpus
def test_gpus_that_a_launcher_divides_are_counted():
    with pytest.raises(ConfigurationError, match="chief was given 2 GPUs"):
        requested_gpus.check(Distribution("one_device"), CHIEF_TASK, {REQUESTED_GPUS: "4", "CUDA_VISIBLE_DEVICES": "0,1"})


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
    requested_gpus.check(distribution, task, environment)


@without_gpus
@pytest.mark.parametrize(
    ("has_cuda", "remedy"), [(True, "check that LD_LIBRARY_PATH names"), (False, "build the image with --build-arg ")]
)
def test_the_remedy_fits_what_is_missing(has_cuda, remedy, monkeypatch):
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: has_cuda)
    assert remedy in requested_gpus.describe_devices()
