"""Trains under strategies, on real clusters of processes on loopback.

A property of all of them is shown with several processes, and where other code makes
it, as on parameter servers and meshes. test_oracle.py compares what they train,
tests/e2e runs each from the command line, and test_models.py trains tasks under these
two.
"""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from training import EXAMPLES

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = pytest.mark.e2e

WORKERS = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu")

WRITE_WEIGHTS = """
import os, numpy as np, tensorflow as tf
from model import build_model

class Write(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        path = os.path.join(os.path.dirname(__file__), f"weights-{os.getpid()}")
        strategy = tf.distribute.get_strategy()
        values = [strategy.experimental_local_results(variable) for variable in self.model.weights]
        for replica in range(len(values[0])):
            np.savez(f"{path}-{replica}", *[value[replica].numpy() for value in values])

def callbacks(context):
    return [Write()]
"""


def test_weights_of_four_workers_on_a_machine_of_any_size_are_equal(cluster):
    """Equal to the last bit; and no temporary files are left."""
    import numpy as np

    temporary = set(Path(tempfile.gettempdir()).glob("tfx-distribute-*"))
    (cluster.folder / "write_weights.py").write_text(WRITE_WEIGHTS)
    module = UserModule("write_weights.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    distribution = Distribution("multi_worker_mirrored", num_workers=4, accelerator_type="cpu")
    result = cluster.train(distribution, TrainingOptions(per_replica_batch_size=16, train_steps=30), module=module)
    assert (result.num_replicas, result.global_batch_size, result.train_steps) == (4, 64, 30)
    assert {str(task) for task, _ in cluster.reports} == {"chief", "worker 0", "worker 1", "worker 2"}
    # All processes report that they ended at the same step.
    done = {task: progress.step for task, progress in cluster.reports if progress.phase == "done"}
    assert set(done.values()) == {30}
    assert len(done) == 4
    first, *others = (np.load(file) for file in cluster.folder.glob("weights-*.npz"))
    assert (len(first.files), len(others)) == (6, 3)
    assert all(np.array_equal(first[name], other[name]) for other in others for name in first.files)
    assert set(Path(tempfile.gettempdir()).glob("tfx-distribute-*")) == temporary


AVERAGING = """
import tensorflow as tf

class Averages(tf.keras.layers.Layer):
    def __init__(self, name, **options):
        super().__init__(name=name)
        self.options = options

    def build(self, shape):
        self.average = self.add_weight(name="average", shape=(), initializer="zeros", trainable=False, **self.options)

    def call(self, inputs, training=None):
        if training:
            self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(inputs))
        return inputs

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = Averages("astray")(tf.keras.layers.Dropout(0.1)(pixels))
    hidden = tf.keras.layers.BatchNormalization(name="norm")(Averages("together", aggregation="mean")(hidden))
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))
    model.compile(tf.keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy")
    return model
"""


def test_a_variable_that_replicas_set_differently_is_named(cluster, keras_3_server):
    cluster.server = keras_3_server
    (cluster.folder / "averaging.py").write_text(AVERAGING)
    module = UserModule("averaging.build_model", (str(cluster.folder),))
    cluster.train(WORKERS, TrainingOptions(32, epochs=2, keras_version=3), module=module)
    (message,) = cluster.messages()
    # The statistics of Keras 3's layer have no aggregation.
    names = "astray/average, norm/moving_mean, norm/moving_variance"
    assert re.match(f"module: the steps set {names} differently on each replica, and only the first", message)
    assert "aggregation='mean'" in message


GATHERING = """
import tensorflow as tf

def distances(truth, prediction):
    replica = tf.distribute.get_replica_context()  # None where Keras 3 builds the loss
    of_all = replica.all_gather(prediction, axis=0) if replica else prediction
    others = tf.reduce_mean(tf.tanh(tf.matmul(prediction, of_all, transpose_b=True)), 1)
    return tf.reduce_mean(tf.square(prediction), 1) - others

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(4, kernel_initializer="ones")(pixels / 64.0))
    model.compile(tf.keras.optimizers.SGD(0.1), loss=distances)
    return model
"""


def test_a_loss_over_the_gathered_batch(cluster, keras_3_server):
    """Steps have different sizes, which one TensorFlow call cannot have."""
    cluster.server = keras_3_server
    (cluster.folder / "gathering.py").write_text(GATHERING)
    module = UserModule("gathering.build_model", (str(cluster.folder),))

    def loss(distribution, per_replica, steps_per_execution=1):
        options = TrainingOptions(per_replica, epochs=2, keras_version=3, steps_per_execution=steps_per_execution)
        metrics = cluster.train(distribution, options, module=module).metrics
        return metrics["loss"], metrics["val_loss"]

    alone = loss(Distribution("one_device", accelerator_type="cpu"), 90)
    assert loss(WORKERS, 45) == pytest.approx(alone, rel=1e-4)
    with pytest.raises(TrainingError, match="^module: the steps of the model communicate .*; write steps_per_execution=1"):
        loss(WORKERS, 45, steps_per_execution=10)


CHECKSUMS = """
import tensorflow as tf

class Checksum(tf.keras.metrics.Sum):
    def __init__(self, power):
        super().__init__(name=f"power_{power}", dtype=tf.float64)
        self.power = power

    def update_state(self, truth, prediction, sample_weight=None):
        super().update_state(tf.cast(prediction, tf.float64) ** self.power)

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    places = tf.constant([[float(1 + place % 13)] for place in range(64)])
    untrained = tf.keras.layers.Dense(1, kernel_initializer=lambda shape, dtype=None: places)
    model = tf.keras.Model({"pixels": pixels}, untrained(pixels))
    model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics=[Checksum(power) for power in range(3)])
    return model

def callbacks(context):
    return [tf.keras.callbacks.CSVLogger(f"{context.model_run_dir}/epochs.csv")]
"""


def test_an_epoch_of_parameter_servers_sees_each_example_once(cluster):
    """Also if a call ends in another epoch's middle, at any number of workers."""
    import tensorflow as tf

    (cluster.folder / "checksums.py").write_text(CHECKSUMS)
    module = UserModule("checksums.build_model", (str(cluster.folder),))
    servers = Distribution("parameter_server", num_workers=3, accelerator_type="cpu")
    data = replace(cluster.job.data, eval=None)
    cluster.train(servers, TrainingOptions(150, epochs=3), module=module, data=data)
    rows = (Path(cluster.job.outputs.model_run_dir) / "epochs.csv").read_text().splitlines()
    names, *epochs = (row.split(",") for row in rows)
    columns = [index for index, name in enumerate(names) if name.startswith("power")]

    examples = tf.data.TFRecordDataset(data.train.files, "GZIP").batch(1400).get_single_element()
    pixels = tf.io.parse_example(examples, {"pixels": tf.io.FixedLenFeature([64], tf.float32)})["pixels"]
    predictions = pixels.numpy().astype("float64") @ [1 + place % 13 for place in range(64)]
    sums = [1400, sum(predictions), sum(predictions**2)]
    assert len(epochs) == 3
    for epoch in epochs:
        assert [float(epoch[index]) for index in columns] == pytest.approx(sums, rel=1e-6)


def test_all_reduce_of_mirrored(cluster):
    distribution = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2, all_reduce="hierarchical_copy")
    assert cluster.train(distribution, TrainingOptions(32, train_steps=5)).num_replicas == 2


def test_ring_all_reduce_and_bfloat16(cluster):
    result = cluster.train(replace(WORKERS, all_reduce="ring"), TrainingOptions(32, epochs=4, precision="mixed_bfloat16"))
    assert result.metrics["val_accuracy"] > 0.8
