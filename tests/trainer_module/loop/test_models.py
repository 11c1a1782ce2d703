"""Trains many kinds of models and tasks that users write, in both Keras versions."""

import pytest

from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingOptions, UserModule

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("exporting")]

ONE = Distribution("one_device", accelerator_type="cpu")
MIRRORED = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2)
SERVERS = Distribution("parameter_server", num_workers=1, accelerator_type="cpu")
MESH = Distribution("model_parallel", mesh="1x2", layout_rules="kernel = unsharded, model", accelerator_type="cpu")

HEAD = """
import tensorflow as tf
from tfx_distribute.trainer_module import Task

def functional():
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(32, activation="relu")(pixels)
    return tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))

def compiled(model):
    model.compile(tf.keras.optimizers.Adam(0.005), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
UNBUILT = """
class Model(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(32, activation="relu")
        self.head = tf.keras.layers.Dense(10, activation="softmax")

    def call(self, features, training=False):
        return self.head(self.hidden(features["pixels"]))

class Unbuilt(Task):
    def __init__(self, context):
        self.model = Model()
        self.optimizer = tf.keras.optimizers.Adam(0.005)
        self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
        self.metrics = [self.accuracy]

    def train_step(self, features, label):
        probabilities = self.model(features, training=True)
        self.accuracy.update_state(label, probabilities)
        return tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(label, probabilities))

    eval_step = train_step
"""
STOPS = """
class Stop(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            self.model.stop_training = True

def build_model(context):
    return compiled(functional())

def callbacks(context):
    heard = lambda batch, logs: print("heard", batch, flush=True)
    return [Stop(), tf.keras.callbacks.LambdaCallback(on_train_batch_end=heard)]
"""


@pytest.fixture
def train(cluster, request):
    def train(text, function, distribution, options):
        name = f"own_{request.node.name.partition('[')[0]}"
        (cluster.folder / f"{name}.py").write_text(HEAD + text)
        if options.keras_version == 3:
            cluster.server = request.getfixturevalue("keras_3_server")
        module = UserModule(f"{name}.{function}", (str(cluster.folder),))
        return cluster.train(distribution, options, module=module)

    return train


# The oracle has such models, except on a mesh, which builds them as those of tasks.
@pytest.mark.parametrize(
    ("distribution", "keras_version"),
    [(MIRRORED, 3), (SERVERS, 2), (MESH, 2)],
    ids=lambda value: getattr(value, "strategy", value),
)
def test_model_that_is_built_by_its_first_batch(train, cluster, distribution, keras_version):
    """It learns, and there is one export."""
    result = train(UNBUILT, "Unbuilt", distribution, TrainingOptions(32, epochs=5, keras_version=keras_version))
    assert result.metrics["val_accuracy"] > 0.9
    assert (cluster.model / "saved_model.pb").is_file()
    assert list(cluster.folder.glob("model*")) == [cluster.model]


def test_callback_can_stop_after_a_batch(train, cluster):
    result = train(STOPS, "build_model", ONE, TrainingOptions(32, train_steps=40, keras_version=3))
    assert result.train_steps == 5
    lines = (cluster.logs / "chief-0.log").read_text().splitlines()
    assert [line for line in lines if line.startswith("heard")] == [f"heard {batch}" for batch in range(5)]
