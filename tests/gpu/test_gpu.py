"""Trains on a GPU, and expects what the CPU computes.

The cheapest truth comes first. Each test prints what it has compared.
"""

import functools
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from faults import Strike, continued
from training import TrainingCluster

from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.job.training_job import Distribution, FaultTolerance, TrainingOptions, TrainingResult

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

# Relative tolerances of the losses, by precision. XLA tries several kernels, some of
# which round to TensorFloat-32 even where NVIDIA_TF32_OVERRIDE forbids it.
FLOAT32, TF32, HALF = 1e-4, 0.01, 0.03

Train = Callable[..., TrainingResult]


def test_a_gpu_is_seen_and_computes(kind):
    if kind == "gpu":
        print(f"\n{tf.config.experimental.get_device_details(tf.config.list_physical_devices('GPU')[0])}")
    with tf.device(f"{kind}:0"):
        product = tf.linalg.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    assert kind.upper() in product.device
    assert np.all(product.numpy() == 64)


@pytest.fixture(scope="session")
def on_cpu(clusters) -> Train:
    """Returns a function that trains on one CPU device, once for each training."""

    @functools.cache
    def train(keras_version: int = 2, **options: Any) -> TrainingResult:
        cluster = clusters(keras_version)
        return cluster.train(training_options=replace(cluster.job.training_options, **options))

    return train


def check(result: TrainingResult, expected: TrainingResult, tolerance: float) -> None:
    """Prints the losses of two trainings, and checks that they agree."""
    for name in ("loss", "val_loss"):
        ours, theirs = result.metrics[name], expected.metrics[name]
        print(f"\n  {name} {ours:.7f}, on the CPU {theirs:.7f}: {abs(ours / theirs - 1):.1e}", end="", flush=True)
        assert ours == pytest.approx(theirs, rel=tolerance)
    assert result.train_steps == expected.train_steps


# name -> strategy, number of replicas, and True if it takes two halves of the GPU.
STRATEGIES = {
    "one_device": (Distribution("one_device"), 1, False),
    "default": (Distribution("default"), 1, False),
    "mirrored, one GPU": (Distribution("mirrored", accelerator_count=1), 1, False),
    "mirrored, reduction_to_one_device": (
        Distribution("mirrored", accelerator_count=2, all_reduce="reduction_to_one_device"),
        2,
        True,
    ),
    "mirrored, hierarchical_copy": (Distribution("mirrored", accelerator_count=2, all_reduce="hierarchical_copy"), 2, True),
    "two workers, ring": (Distribution("multi_worker_mirrored", 2, accelerator_count=1, all_reduce="ring"), 2, False),
    "central_storage": (Distribution("central_storage", accelerator_count=2), 2, True),
    "model_parallel, 1x2": (
        Distribution("model_parallel", mesh="1x2", layout_rules="hidden/kernel = unsharded, model"),
        1,
        True,
    ),
    "model_parallel, 2x1": (Distribution("model_parallel", mesh="2x1"), 2, True),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy(name, clusters, on_cpu, kind):
    distribution, replicas, halved = STRATEGIES[name]
    if kind == "cpu" and "worker" not in name:
        distribution = replace(distribution, accelerator_count=2 if halved and not distribution.mesh else 1)
    # Two processes share the GPU.
    cluster = replace(clusters(halved=halved), gpus=("0",) * distribution.num_workers)
    options = TrainingOptions(64 // replicas, train_steps=60)
    # DTensor gives all batches the same size.
    expected = on_cpu(drop_remainder=True) if distribution.mesh else on_cpu()
    check(cluster.train(replace(distribution, accelerator_type=kind), options), expected, FLOAT32)


def test_parameter_servers_with_a_worker_on_the_gpu(clusters, on_cpu, kind):
    """The steps of a single worker come one after the other, as on one device."""
    distribution = Distribution("parameter_server", 1, num_parameter_servers=2, accelerator_type=kind, accelerator_count=1)
    result = clusters().train(distribution, TrainingOptions(64, train_steps=60))
    assert result.metrics["val_accuracy"] == pytest.approx(on_cpu().metrics["val_accuracy"], abs=0.1)
    assert result.metrics["val_loss"] == pytest.approx(on_cpu().metrics["val_loss"], rel=0.1)


# name -> options, and the tolerance.
OPTIONS = {
    "jit_compile": ({"jit_compile": True}, TF32),
    "ten steps a call": ({"steps_per_execution": 10}, FLOAT32),
    "accumulation": ({"per_replica_batch_size": 32, "gradient_accumulation_steps": 2}, FLOAT32),
    "mixed_float16": ({"precision": "mixed_float16"}, HALF),
    "mixed_bfloat16": ({"precision": "mixed_bfloat16"}, HALF),
    "mixed_float16, jit_compile, accumulation": (
        {
            "precision": "mixed_float16",
            "jit_compile": True,
            "per_replica_batch_size": 32,
            "gradient_accumulation_steps": 2,
        },
        HALF,
    ),
}


@pytest.mark.parametrize(
    ("name", "keras_version"),
    [
        *((name, 2) for name in OPTIONS),
        ("float32", 3),
        ("mixed_float16", 3),
        ("mixed_float16, jit_compile, accumulation", 3),
    ],
)
def test_option(name, keras_version, clusters, on_cpu, kind):
    changes, tolerance = OPTIONS.get(name, ({}, FLOAT32))
    cluster = clusters(keras_version)
    options = replace(cluster.job.training_options, **changes)
    check(cluster.train(Distribution("one_device", accelerator_type=kind), options), on_cpu(keras_version), tolerance)


@pytest.mark.parametrize("keras_version", [2, 3])
def test_steps_that_overflow_are_left_out(keras_version, clusters, on_cpu, kind):
    """The loss scale begins at 2**15 and is halved where gradients exceed 65,504."""
    cluster = clusters(keras_version)
    options = replace(cluster.job.training_options, precision="mixed_float16")
    result = cluster.train(Distribution("one_device", accelerator_type=kind), options, hparams={"loss_factor": 300.0})
    (scale,) = re.findall(r"^loss scale (.+)$", (cluster.logs / "chief-0.log").read_text(), re.MULTILINE)
    print(f"\n  loss scale {scale}", end="")
    assert 1 < float(scale) < 2**15
    assert result.metrics["val_loss"] / 300 == pytest.approx(on_cpu(keras_version).metrics["val_loss"], rel=0.2)


def test_the_exported_model_answers_on_the_cpu(clusters, kind):
    cluster = clusters().exporting()
    result = cluster.train(Distribution("one_device", accelerator_type=kind))
    with tf.device("cpu:0"):
        examples = tf.data.TFRecordDataset(cluster.job.data.eval.files).batch(512).get_single_element()
        labels = tf.io.parse_example(examples, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
        answers = tf.saved_model.load(str(cluster.model)).signatures["serving_default"](examples)["outputs"]
    chosen = np.take_along_axis(answers.numpy(), labels.numpy()[:, None], axis=1)
    assert -np.log(chosen).mean() == pytest.approx(result.metrics["val_loss"], rel=FLOAT32)


def test_profile_has_the_gpu(clusters, kind):
    cluster = clusters()
    options = replace(cluster.job.training_options, profile_steps="20,25")
    cluster.train(Distribution("one_device", accelerator_type=kind), options)
    (profile,) = Path(cluster.job.outputs.model_run_dir).glob("plugins/profile/*/*.xplane.pb")
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    planes = [plane.name for plane in xplane_pb2.XSpace.FromString(profile.read_bytes()).planes if plane.lines]
    print(f"\n  {planes} {cluster.messages()}", end="")
    assert kind == "cpu" or any(name.startswith("/device:GPU:0") for name in planes)


def test_goes_on_from_the_last_save(clusters, on_cpu, kind):
    cluster = clusters()
    outputs = replace(cluster.job.outputs, checkpoint_dir=str(cluster.folder / "checkpoints"))
    strike = Strike(cluster, signal.SIGKILL, step=25)
    result = cluster.train(
        Distribution("one_device", accelerator_type=kind),
        on_progress=strike,
        outputs=outputs,
        hparams={"step_seconds": 0.1},
        fault_tolerance=FaultTolerance(save_checkpoints_steps=10),
    )
    assert strike.pids, "the process was killed"
    assert continued(cluster)
    check(result, on_cpu(), FLOAT32)


TWO_WORKERS = Distribution("multi_worker_mirrored", 2, accelerator_count=1, accelerator_type="gpu", all_reduce="ring")


@pytest.mark.parametrize(
    ("distribution", "gpus", "message"),
    [
        (TWO_WORKERS, ("0",), "accelerator_count: 2 processes with 1 GPUs each, of this machine's 1"),
        (TWO_WORKERS, ("0", "7"), "accelerator_type: GPUs are asked for, but TensorFlow sees only CPU:0"),
        (Distribution("mirrored", accelerator_type="gpu", accelerator_count=2), ("0",), "GPUs? (are|is) asked for, but"),
    ],
    ids=["too few for the processes", "one that the machine lacks", "more than the process has"],
)
def test_missing_gpus_are_refused(distribution, gpus, message, clusters: Callable[..., TrainingCluster]):
    cluster = replace(clusters(), gpus=gpus)
    with pytest.raises(TfxDistributeError, match=message) as refused:
        cluster.train(distribution)
    print(f"\n  {refused.value}", end="")
