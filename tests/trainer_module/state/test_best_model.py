"""Exports the best weights under each strategy, also after a kill; keeps states."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    FaultTolerance,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)
from tfx_distribute.trainer_module.state import best_model as best_model_lib

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HPARAMS = {"hidden_units": 16, "learning_rate": 0.005}
# The third epoch is the best one: the fourth spoils the weights.
MODULE = """
import os, signal
import tensorflow as tf
from model import build_model
from tfx_distribute.trainer_module import atomic_files

class Spoil(tf.keras.callbacks.Callback):
    def __init__(self, context):
        super().__init__()
        self.killed = context.hparams.get("killed") if context.is_chief else None

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3:
            self.model.optimizer.learning_rate.assign(3.0)
        if self.killed and epoch == 4 and not os.path.exists(self.killed):
            open(self.killed, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def fail_once(flag):
    write = atomic_files.write
    def write_second_time(path, text, **options):
        if path.endswith("best.json") and not os.path.exists(flag):
            open(flag, "w").close()
            raise tf.errors.AbortedError(None, None, "All 10 retry attempts failed. The last failure: HTTP 503")
        write(path, text, **options)
    atomic_files.write = write_second_time

def callbacks(context):
    if context.is_chief and "outage" in context.hparams:
        fail_once(context.hparams["outage"])
    log = [tf.keras.callbacks.CSVLogger(context.hparams["log"])] if context.is_chief else []
    return [Spoil(context), *log]
"""
STRATEGIES = [
    Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    Distribution("parameter_server", num_parameter_servers=2, partition_min_bytes=1024, accelerator_type="cpu"),
]


def train(cluster, distribution: Distribution, metric="val_loss", state="state", **hparams):
    (cluster.folder / "spoilt.py").write_text(MODULE)
    cluster.job = replace(cluster.job, outputs=replace(cluster.job.outputs, checkpoint_dir=str(cluster.folder / state)))
    replicas = 1 if distribution.strategy == "parameter_server" else distribution.num_workers
    return cluster.train(
        distribution,
        TrainingOptions(64 // replicas, epochs=6, export_best=metric, export_mode="" if metric == "val_loss" else "max"),
        module=UserModule("spoilt.build_model", (str(cluster.folder), str(EXAMPLES / "digits"))),
        hparams={**HPARAMS, "log": str(cluster.folder / "log.csv"), **hparams},
        fault_tolerance=FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=50),
    )


def loss_of_export(cluster) -> float:
    examples = tf.data.TFRecordDataset(cluster.job.data.eval.files, "GZIP").batch(397).get_single_element()
    labels = tf.io.parse_example(examples, {"digit": tf.io.FixedLenFeature([1], tf.int64)})["digit"]
    probabilities = tf.saved_model.load(str(cluster.model)).signatures["serving_default"](examples)["outputs"]
    return float(tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, probabilities)))


@pytest.mark.e2e
@pytest.mark.parametrize("distribution", STRATEGIES, ids=lambda d: d.strategy)
def test_exports_the_best_epoch(cluster, distribution):
    result = train(cluster.exporting(), distribution)
    with open(cluster.folder / "log.csv") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file)]
    assert (result.best.epoch, result.best.step) == (1 + losses.index(min(losses)), result.best.epoch * 22)
    assert result.best.value == pytest.approx(min(losses), rel=1e-5)
    assert set(result.best.metrics) == set(result.metrics)
    assert result.metrics["val_loss"] == pytest.approx(losses[-1], rel=1e-5)
    assert loss_of_export(cluster) == pytest.approx(min(losses), rel=1e-4)
    assert losses[-1] > 2 * min(losses)


@pytest.mark.e2e
def test_the_same_model_wins_after_an_outage_of_the_storage_and_a_kill(cluster):
    """The storage fails after the first epoch, and the chief dies in the fifth."""
    whole = train(cluster, STRATEGIES[0], "val_accuracy")
    faults = {fault: str(cluster.folder / fault) for fault in ("outage", "killed")}
    restarted = train(cluster, STRATEGIES[0], "val_accuracy", state="state-of-faults", **faults)
    assert all(Path(flag).exists() for flag in faults.values())
    assert restarted.best == whole.best
    assert len([message for message in cluster.messages() if "restart" in message]) == 2


@pytest.mark.e2e
def test_an_unknown_metric_is_named_before_the_first_step(cluster):
    with pytest.raises(TrainingError, match="'val_f1'; write one of val_loss, val_accuracy, loss, accuracy"):
        train(cluster, Distribution(accelerator_type="cpu"), "val_f1")
    assert not any(progress.step for _, progress in cluster.reports)


@pytest.fixture
def job(tmp_path) -> TrainingJob:
    split = Split((), 64)
    return TrainingJob(
        UserModule("model.build_model"),
        TrainingData(split, split, "label", None, None),
        Distribution(),
        TrainingOptions(32, epochs=4, export_best="val_loss"),
        Outputs("", "", "", str(tmp_path)),
    )


def plan(job):
    return make_plan(job.training_options, 64, 1)


def make(job, value: float = 0.0):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.build((None, 1))
    model.layers[0].kernel.assign([[value]])
    return model, best_model_lib.BestModel(job, plan(job), model, is_chief=True)


def alone(*values):
    return values


def offer(model, best, values: list[float]) -> None:
    for epoch, value in enumerate(values):
        model.layers[0].kernel.assign([[value]])
        best.offer({"val_loss": value}, epoch, 10 * (epoch + 1), alone)


@pytest.mark.parametrize(
    ("mode", "values", "epoch"),
    [
        ("min", [3.0, 1.0, 1.0, 2.0], 2),
        ("max", [3.0, 1.0, 3.0, 2.0], 1),
        ("", [float("nan"), float("-inf"), 5.0, float("nan")], 3),
    ],
)
def test_the_first_best_finite_value_wins(job, mode, values, epoch, tmp_path):
    job = replace(job, training_options=replace(job.training_options, export_mode=mode))
    model, best = make(job)
    offer(model, best, values)
    assert best.restore().epoch == epoch
    assert float(model.layers[0].kernel.numpy()[0, 0]) == values[epoch - 1]
    assert len(list(tmp_path.glob("*/best-*.index"))) == 1


def test_a_retry_knows_the_best_so_far(job):
    offer(*make(job), [3.0, 1.0])
    model, best = make(job)
    best.offer({"val_loss": 2.0}, 2, 30, alone)
    assert (best.restore().epoch, float(model.layers[0].kernel.numpy()[0, 0])) == (2, 1.0)


def test_without_a_finite_value_nothing_is_best(job):
    model, best = make(job)
    offer(model, best, [float("nan")])
    assert best.restore() is None


@pytest.mark.parametrize(
    ("changes", "names", "has_evaluation", "message"),
    [
        ({"export_best": "val_loss_total"}, ["loss"], True, "write one of val_loss, loss"),
        ({}, ["loss"], False, "there is no split 'eval'"),
        ({"validation_freq": 5}, ["loss"], True, "write validation_freq=4 or less"),
        (
            {"export_best": "val_auc", "export_mode": "max"},
            ["loss", "mae"],
            True,
            "write one of val_loss, val_mae, loss, mae",
        ),
    ],
)
def test_names_a_metric_that_will_have_no_value(job, changes, names, has_evaluation, message):
    job = replace(job, training_options=replace(job.training_options, **changes))
    with pytest.raises(ConfigurationError, match=message):
        best_model_lib.check_metric(job, plan(job), names, names, has_evaluation)


def test_a_metric_of_several_values_has_numbered_names(job):
    options = replace(job.training_options, export_best="val_recall_2", export_mode="max")
    best_model_lib.check_metric(replace(job, training_options=options), plan(job), ["loss"], ["loss", "recall"], True)
