"""Trains on real clusters of processes on loopback."""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tfx_distribute.trainer_module import lines
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution, Outputs, TrainingOptions, UserModule

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

pytestmark = pytest.mark.e2e

RULES = "dense/kernel = unsharded, model; dense/bias = model; dense_1/kernel = model, unsharded"
# The distribution and the batch per replica; the global batch is always 64.
SHAPES = {
    "default": (Distribution("default", accelerator_type="cpu"), 64),
    "one_device": (Distribution("one_device", devices="CPU:1"), 64),
    "mirrored": (Distribution("mirrored", accelerator_type="cpu", accelerator_count=2), 32),
    "central_storage": (Distribution("central_storage", accelerator_type="cpu", accelerator_count=2), 32),
    "multi_worker_mirrored": (Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"), 32),
    "parameter_server": (Distribution("parameter_server", num_workers=2, accelerator_type="cpu"), 64),
    "model_parallel": (Distribution("model_parallel", mesh="2x2", layout_rules=RULES, accelerator_type="cpu"), 32),
}
KERAS_3 = [name for name, row in strategy_table.STRATEGIES.items() if name in SHAPES and not row.not_keras_3]
CELLS = [(name, loop, 2) for name in SHAPES for loop in ("model", "task")]
CELLS += [(name, loop, 3) for name in KERAS_3 for loop in ("model", "task")]


def loss_curve(run: str) -> dict[str, list[float]]:
    """Returns the losses of each epoch from the TensorBoard logs."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves = {}
    for part in ("train", "validation"):
        events = EventAccumulator(f"{run}/{part}", size_guidance={"tensors": 0}).Reload()
        import tensorflow as tf

        curves[part] = [float(tf.make_ndarray(event.tensor_proto)) for event in events.Tensors("epoch_loss")]
    return curves


@pytest.fixture(scope="module")
def curves() -> dict[tuple[str, str, int], dict[str, list[float]]]:
    return {}


def train_cell(cluster, request, curves, strategy, loop, keras_version):
    """Trains one of `CELLS` and keeps its loss curve; returns the result."""
    distribution, per_replica = SHAPES[strategy]
    cluster.server = request.getfixturevalue("keras_3_server" if keras_version == 3 else "fork_server")
    for earlier in (cluster.model, cluster.job.outputs.model_run_dir):
        shutil.rmtree(earlier, ignore_errors=True)
    result = cluster.train(
        distribution,
        TrainingOptions(per_replica_batch_size=per_replica, epochs=15, keras_version=keras_version),
        module=UserModule(f"{loop}.build_model", (str(EXAMPLES / "digits"),)),
    )
    curves[strategy, loop, keras_version] = loss_curve(cluster.job.outputs.model_run_dir)
    return result


def test_every_strategy_has_its_cells():
    assert set(strategy_table.STRATEGIES) - set(SHAPES) == {"tpu"}, "which needs a TPU"


@pytest.mark.parametrize(("strategy", "loop", "keras_version"), CELLS)
def test_digits_are_learned(cluster, request, curves, strategy, loop, keras_version):
    """Reaches 0.95 on held-out digits with the right replicas; exports one model."""
    result = train_cell(cluster, request, curves, strategy, loop, keras_version)
    assert result.metrics["val_accuracy"] >= 0.95
    per_replica = SHAPES[strategy][1]
    assert (result.num_replicas, result.global_batch_size) == (64 // per_replica, 64)
    assert result.train_steps == 15 * 22
    assert (cluster.model / "saved_model.pb").is_file()
    assert sorted(path.name for path in cluster.folder.iterdir() if "model" in path.name) == ["model"]


@pytest.mark.parametrize("keras_version", [2, 3])
def test_strategies_follow_one_loss_curve(cluster, request, curves, keras_version):
    """With the same seed and global batch, losses differ by float rounding only.

    The differences grow with the steps, how fast depends on the processor, and only
    between different numbers of replicas: one replica's sums are of 64 examples, those
    of two are of 32 each. Parameter servers are left out because workers do not wait
    for each other. A model that is divided over devices is left out because its
    batches have a fixed size: see `test_any_layout_trains_the_same_model`.
    """
    in_step = [cell for cell in CELLS if cell[2] == keras_version and cell[0] not in ("parameter_server", "model_parallel")]
    for cell in in_step:
        if cell not in curves:  # another test process has trained it
            train_cell(cluster, request, curves, *cell)
    alone, two_replicas = (curves[strategy, "model", keras_version] for strategy in ("one_device", "mirrored"))
    assert len(alone["train"]) == 15
    for cell in in_step:
        curve, same = curves[cell], alone if SHAPES[cell[0]][1] == SHAPES["one_device"][1] else two_replicas
        for part in ("train", "validation"):
            assert curve[part] == pytest.approx(same[part], rel=1e-3), cell
            assert curve[part] == pytest.approx(alone[part], rel=0.05), cell
            assert curve[part][:3] == pytest.approx(alone[part][:3], rel=1e-3), cell


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


@pytest.mark.parametrize("strategy", ["mirrored", "multi_worker_mirrored"])
def test_weights_are_equal_on_every_replica(cluster, strategy):
    """Equal to the last bit; and no temporary files are left."""
    import numpy as np

    temporary = set(Path(tempfile.gettempdir()).glob("tfx-distribute-*"))
    distribution, per_replica = SHAPES[strategy]
    (cluster.folder / "write_weights.py").write_text(WRITE_WEIGHTS)
    module = UserModule("write_weights.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    cluster.train(distribution, TrainingOptions(per_replica, epochs=3), module=module)
    one, other = (np.load(file) for file in sorted(cluster.folder.glob("weights-*.npz")))
    assert len(one.files) == 6
    assert all(np.array_equal(one[name], other[name]) for name in one.files)
    assert set(Path(tempfile.gettempdir()).glob("tfx-distribute-*")) == temporary


TELL_PARTS = """
import json, os, tensorflow as tf
from model import build_model
from tensorflow.experimental import dtensor

class Tell(tf.keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        variables = self.model.trainable_variables + self.model.optimizer.variables
        parts = {v.name: [part.shape.as_list() for part in dtensor.unpack(v.read_value())] for v in variables}
        with open(os.path.join(os.path.dirname(__file__), "parts"), "w") as file:
            json.dump(parts, file)

def callbacks(context):
    return [Tell()]
"""


def test_one_device_holds_only_its_part_of_a_divided_weight(cluster):
    """The same holds for the optimizer's slots. Other tests check the results."""
    (cluster.folder / "tell_parts.py").write_text(TELL_PARTS)
    module = UserModule("tell_parts.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    cluster.train(SHAPES["model_parallel"][0], TrainingOptions(32, train_steps=3), module=module)
    parts = json.loads((cluster.folder / "parts").read_text())
    for name in ("dense/kernel:0", "m/dense/kernel:0", "v/dense/kernel:0"):
        assert parts[name] == [[64, 32]] * 4, "two columns of devices, each with half of the units"
    assert parts["dense_1/kernel:0"] == [[32, 64]] * 4
    assert parts["dense_2/kernel:0"] == [[64, 10]] * 4, "no rule: whole on each"


@pytest.mark.parametrize(
    ("mesh", "rules"),
    [
        ("2x2", "dense/kernel = unsharded, model"),  # the next layer is not divided, so gradients come out divided
        ("1x2", "dense/kernel = unsharded, model; dense/bias = model"),
        ("2x2", "dense/kernel = model, unsharded; dense_1/bias = model"),
        ("2x1", "dense/kernel = batch, unsharded"),
    ],
)
def test_any_layout_trains_the_same_model(cluster, mesh, rules):
    alone = cluster.train(SHAPES["one_device"][0], TrainingOptions(64, epochs=3, drop_remainder=True))
    per_replica = 64 // int(mesh[0])
    divided = Distribution("model_parallel", mesh=mesh, layout_rules=rules, accelerator_type="cpu")
    assert cluster.train(divided, TrainingOptions(per_replica, epochs=3)).metrics == pytest.approx(alone.metrics, rel=1e-3)


NORMS = """
import tensorflow as tf

class Lars(tf.keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        ratio = tf.norm(tf.convert_to_tensor(variable)) / (tf.norm(gradient) + 1e-6)
        super().update_step(gradient * tf.maximum(ratio, 0.1), variable)

def build_model(context):
    pixels, limit = tf.keras.Input((64,), name="pixels"), tf.keras.constraints.MaxNorm(0.5)
    hidden = tf.keras.layers.Dense(16, activation="tanh", kernel_constraint=limit)(pixels)
    digits = tf.keras.layers.Dense(10, activation="softmax", kernel_constraint=limit)(hidden)
    model = tf.keras.Model({"pixels": pixels}, digits)
    optimizer = %s
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


@pytest.mark.parametrize("optimizer", ["Lars(0.01, momentum=0.9)", "tf.keras.optimizers.Adafactor(0.01)"])
def test_norms_of_divided_weights_and_gradients(cluster, optimizer):
    """An optimizer and constraints take norms; Adafactor has slots of other shapes."""
    (cluster.folder / "norms.py").write_text(NORMS % optimizer)
    module = UserModule("norms.build_model", (str(cluster.folder),))
    alone = cluster.train(SHAPES["one_device"][0], TrainingOptions(64, train_steps=20, drop_remainder=True), module=module)
    divided = replace(
        SHAPES["model_parallel"][0], layout_rules="dense/kernel = model, unsharded; dense_1/kernel = model, unsharded"
    )
    trained = cluster.train(divided, TrainingOptions(32, train_steps=20), module=module)
    assert trained.metrics == pytest.approx(alone.metrics, rel=1e-3)


EMBEDDING = """
import tensorflow as tf

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    rows = tf.keras.layers.Embedding(20, 8, name="table")(tf.cast(pixels * 16.0, tf.int32))
    digits = tf.keras.layers.Dense(10, activation="softmax")(tf.keras.layers.Flatten()(rows))
    model = tf.keras.Model({"pixels": pixels}, digits)
    model.compile(tf.keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def test_embedding_is_divided_by_columns(cluster):
    (cluster.folder / "embedding.py").write_text(EMBEDDING)
    module = UserModule("embedding.build_model", (str(cluster.folder),))
    alone = cluster.train(SHAPES["one_device"][0], TrainingOptions(64, epochs=2, drop_remainder=True), module=module)
    columns = replace(SHAPES["model_parallel"][0], layout_rules="table/embeddings = unsharded, model")
    assert cluster.train(columns, TrainingOptions(32, epochs=2), module=module).metrics == pytest.approx(
        alone.metrics, rel=1e-3
    )
    rows = replace(columns, layout_rules="table/embeddings = model, unsharded")
    with pytest.raises(
        TrainingError, match="^layout_rules: DTensor does not support sharded 0th dimension.*; write another rule"
    ):
        cluster.train(rows, module=module)


METRICS = """
import sys
sys.path.append(%r)
import model as digits
import tensorflow as tf

class Counts(tf.keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="counts")
        self.counts = self.add_weight(name="counts", shape=(2,), initializer="zeros")

    def update_state(self, truth, prediction, sample_weight=None):
        self.counts.assign_add(tf.ones([2]))

    def result(self):
        return tf.reduce_mean(self.counts)

    def reset_state(self):
        self.counts.assign(tf.zeros([2]))

def build_model(context):
    model = digits.build_model(context)
    model.compile(model.optimizer, model.loss, metrics=[%s])
    return model
"""


@pytest.fixture
def train_on_a_mesh(cluster, request):
    """Trains the digits example on a mesh with a metric, a Python expression."""

    def train(metric):
        folder = request.config.rootpath / "examples" / "digits"
        (cluster.folder / "metric.py").write_text(METRICS % (str(folder), metric))
        module = UserModule("metric.build_model", (str(cluster.folder),))
        return cluster.train(SHAPES["model_parallel"][0], TrainingOptions(32, epochs=2), module=module)

    return train


def test_a_metric_may_reset_itself_with_a_tensor_on_a_mesh(train_on_a_mesh):
    assert train_on_a_mesh("Counts()").metrics["counts"] > 0.0


def test_an_operation_of_a_metric_that_cannot_run_on_a_mesh_is_named(train_on_a_mesh):
    message = "^module: the operation .*confusion_matrix/ScatterNd fails under DTensor .*; write the layer, the loss or the"
    with pytest.raises(TrainingError, match=message):
        train_on_a_mesh("tf.keras.metrics.MeanIoU(10, sparse_y_pred=False)")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("embedding = model", "^layout_rules: 'embedding' matches no variable.* the model has dense/kernel, dense/bias"),
        (
            "dense_2/bias = model",
            "^layout_rules: dense_2/bias \\[10\\] cannot be divided along 'model': 10 is not a multiple of 4",
        ),
    ],
)
def test_layout_rule_that_fits_no_variable_is_refused_before_the_first_step(cluster, rules, message):
    mesh = Distribution("model_parallel", mesh="1x4", layout_rules=rules, accelerator_type="cpu")
    with pytest.raises(TrainingError, match=message):
        cluster.train(mesh)


@pytest.mark.parametrize(("optimizer", "name"), [("sgd", "SGD without momentum"), ("ftrl", "Ftrl")])
def test_optimizers_that_the_older_line_cannot_use_on_a_mesh(cluster, optimizer, name):
    (cluster.folder / "recompiled.py").write_text(RECOMPILED.format(optimizer=optimizer))
    module = UserModule("recompiled.build_model", (str(cluster.folder), str(EXAMPLES / "digits")))
    mesh = SHAPES["model_parallel"][0]
    if lines.check() is lines.LINES[0]:
        with pytest.raises(
            TrainingError, match=f"^module: model_parallel cannot use {name} with TensorFlow 2.16.*; write SGD"
        ):
            cluster.train(mesh, module=module)
        return
    alone = cluster.train(SHAPES["one_device"][0], TrainingOptions(64, epochs=3, drop_remainder=True), module=module)
    divided = cluster.train(mesh, TrainingOptions(32, epochs=3), module=module)
    assert divided.metrics == pytest.approx(alone.metrics, rel=1e-3)


RECOMPILED = """
from model import build_model as build

def build_model(context):
    model = build(context)
    model.compile("{optimizer}", model.loss)
    return model
"""

STATEFUL = """
import tensorflow as tf

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(32, activation="relu", kernel_regularizer="l2")(pixels)
    hidden = tf.keras.layers.Dropout(0.1)(tf.keras.layers.BatchNormalization()(hidden))
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))
    schedule = tf.keras.optimizers.schedules.CosineDecay(0.01, context.train_steps)
    model.compile(tf.keras.optimizers.Adam(schedule), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


@pytest.mark.parametrize(
    ("strategy", "keras_version"),
    [*((name, 2) for name in SHAPES), *((name, 3) for name in KERAS_3)],
)
def test_layers_that_keep_a_state(cluster, request, strategy, keras_version):
    """Normalisation, dropout, regularisers and a schedule under each strategy."""
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")
    (cluster.folder / "stateful.py").write_text(STATEFUL)
    distribution, per_replica = SHAPES[strategy]
    result = cluster.train(
        replace(distribution, layout_rules="dense/kernel = unsharded, model" if distribution.mesh else ""),
        TrainingOptions(per_replica, epochs=5, keras_version=keras_version),
        module=UserModule("stateful.build_model", (str(cluster.folder),)),
    )
    assert result.metrics["val_accuracy"] > 0.9


def test_four_workers_on_a_machine_of_any_size(cluster):
    distribution = Distribution("multi_worker_mirrored", num_workers=4, accelerator_type="cpu")
    result = cluster.train(distribution, TrainingOptions(per_replica_batch_size=16, train_steps=30))
    assert (result.num_replicas, result.global_batch_size, result.train_steps) == (4, 64, 30)
    assert {str(task) for task, _ in cluster.reports} == {"chief", "worker 0", "worker 1", "worker 2"}
    # All processes report that they ended at the same step.
    done = {task: progress.step for task, progress in cluster.reports if progress.phase == "done"}
    assert set(done.values()) == {30}
    assert len(done) == 4


def test_learning_rate_of_many_replicas(cluster):
    """Scaling by two is the same as doubling the learning rate in the module."""
    distribution = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2)
    scaled = cluster.train(distribution, TrainingOptions(32, train_steps=30, learning_rate_scaling="linear"))
    by_hand = cluster.train(
        distribution, TrainingOptions(32, train_steps=30), hparams={"hidden_units": 64, "learning_rate": 0.004}
    )
    plain = cluster.train(distribution, TrainingOptions(32, train_steps=30))
    assert scaled.metrics["loss"] == pytest.approx(by_hand.metrics["loss"], rel=1e-4)
    assert scaled.metrics["loss"] < plain.metrics["loss"]
    workers = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu")
    warmed = cluster.train(workers, TrainingOptions(32, train_steps=30, learning_rate_scaling="linear", warmup_steps=20))
    assert scaled.metrics["loss"] < warmed.metrics["loss"]


@pytest.mark.parametrize("all_reduce", ["hierarchical_copy", "reduction_to_one_device"])
def test_all_reduce_of_mirrored(cluster, all_reduce):
    distribution = Distribution("mirrored", accelerator_type="cpu", accelerator_count=2, all_reduce=all_reduce)
    assert cluster.train(distribution, TrainingOptions(32, train_steps=5)).num_replicas == 2


def test_ring_all_reduce_and_bfloat16(cluster):
    distribution = Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu", all_reduce="ring")
    result = cluster.train(distribution, TrainingOptions(32, epochs=4, precision="mixed_bfloat16"))
    assert result.metrics["val_accuracy"] > 0.8


def test_missing_gpus_are_reported(cluster):
    with pytest.raises(TrainingError, match="^accelerator_type: GPUs are asked for, but TensorFlow sees only CPU:0"):
        cluster.train(Distribution("mirrored", accelerator_type="gpu"))


OWN_STEPS = """
import tensorflow as tf

def loss(truth, prediction):
    each = tf.keras.losses.sparse_categorical_crossentropy(truth, prediction)
    if tf.reduce_mean(each) > 1.0:  # AutoGraph has to convert this, though Keras's own code is exempt
        return each * 2.0
    return each

class Model(tf.keras.Model):
    def train_step(self, data):
        logs = super().train_step(data)
        logs["learning_rate"] = self.optimizer.learning_rate
        return logs

def build_model(context):
    assert context.num_replicas == 2 and context.global_batch_size == 64
    assert context.label == "digit" and set(context.inputs) == {"pixels"}
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Dense(32, activation="relu", kernel_regularizer="l2")(pixels)
    model = Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(tf.keras.layers.Dropout(0.1)(hidden)))
    schedule = tf.keras.optimizers.schedules.CosineDecay(0.01, context.train_steps)
    model.compile(tf.keras.optimizers.Adam(schedule), loss, ["accuracy"])
    return model
"""


def test_what_a_keras_user_may_override(cluster, tmp_path):
    """A train_step, a loss with branches, regularisers, dropout, a schedule."""
    (tmp_path / "own_steps.py").write_text(OWN_STEPS)
    result = cluster.train(
        Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
        TrainingOptions(32, epochs=6),
        module=UserModule("own_steps.build_model", (str(tmp_path),)),
    )
    assert result.metrics["val_accuracy"] > 0.8


CALLBACKS = """
import sys, tensorflow as tf
sys.path.append(%r)
from model import build_model

class Count(tf.keras.callbacks.Callback):
    losses = []
    def on_train_batch_end(self, batch, logs=None):
        assert logs["loss"] > 0
        self.losses.append(logs["loss"])
    def on_train_end(self, logs=None):
        with open("%s/" + str(self.chief), "w") as file:
            file.write(str(self.losses))

def callbacks(context):
    count = Count()
    count.chief = context.is_chief
    return [count, tf.keras.callbacks.EarlyStopping("accuracy", min_delta=1.0, patience=1)]
"""


def test_callbacks_of_the_module(cluster, tmp_path):
    """Hooks are called for each batch; a callback can stop training everywhere."""
    (tmp_path / "own_callbacks.py").write_text(CALLBACKS % (str(EXAMPLES / "digits"), tmp_path))
    result = cluster.train(
        Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
        TrainingOptions(32, epochs=9),
        module=UserModule("own_callbacks.build_model", (str(tmp_path),)),
    )
    assert result.train_steps == 44, "no accuracy rises by 1 from the first epoch to the second"
    chief, worker = (json.loads((tmp_path / name).read_text()) for name in ("True", "False"))
    assert len(chief) == 44
    assert chief == worker, "or a callback that sets the learning rate would set another one in each process"


SEVERAL_VALUES = """
import tensorflow as tf

def build_model(context):
    pixels = tf.keras.Input((64,), name="pixels")
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(pixels))
    model.compile("adam", "sparse_categorical_crossentropy", [PerDigit()])
    return model

class PerDigit(tf.keras.metrics.MeanTensor):
    def __init__(self):
        super().__init__(name="mean_probability")
    def update_state(self, truth, prediction, sample_weight=None):
        return super().update_state(tf.reduce_mean(prediction, axis=0))
"""


@pytest.mark.parametrize("num_evaluators", [0, 1])
def test_metric_of_several_values(cluster, tmp_path, num_evaluators):
    (tmp_path / "own_metric.py").write_text(SEVERAL_VALUES)
    workers = Distribution("multi_worker_mirrored", num_workers=2, num_evaluators=num_evaluators, accelerator_type="cpu")
    metrics = cluster.train(workers, module=UserModule("own_metric.build_model", (str(tmp_path),))).metrics
    for prefix in ("mean", "val_mean"):
        named = [f"{prefix}_probability_{digit}" for digit in range(10)]
        assert [name for name in metrics if name.startswith(prefix)] == named
    assert sum(metrics[f"val_mean_probability_{digit}"] for digit in range(10)) == pytest.approx(1.0, rel=1e-4)


def test_message_of_a_module_that_exits_is_reported(cluster, tmp_path):
    (tmp_path / "own_exit.py").write_text("import sys\ndef build_model(context):\n    sys.exit('DATA_DIR is not set')\n")
    with pytest.raises(TrainingError, match="DATA_DIR is not set"):
        cluster.train(module=UserModule("own_exit.build_model", (str(tmp_path),)))


def test_tf_config_of_the_launchers_environment_is_ignored(cluster, monkeypatch):
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    from tfx_distribute.components.launchers.local.fork_client import ForkServer

    with ForkServer(cluster.folder / "log") as server:
        cluster.server = server
        assert cluster.train(training_options=TrainingOptions(64, train_steps=2)).train_steps == 2
    assert cluster.model.is_dir()


@pytest.mark.parametrize(
    ("distribution", "keras_version"),
    [
        (Distribution("default"), 2),
        (Distribution("mirrored", accelerator_count=2, accelerator_type="cpu"), 3),
        (Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"), 2),
    ],
    ids=lambda value: getattr(value, "strategy", value),
)
def test_training_continues_from_the_end_of_a_shorter_one(cluster, request, tmp_path, distribution, keras_version):
    """As trials of a search do, which export no model."""
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")

    def train(epochs: int, state: str):
        outputs = Outputs("", str(tmp_path / "run"), str(tmp_path / "result.json"), str(tmp_path / state), saves_end=True)
        options = TrainingOptions(64, epochs=epochs, keras_version=keras_version)
        return cluster.train(distribution, options, outputs=outputs)

    whole = train(3, "whole")
    train(1, "parts")
    assert cluster.messages() == []
    continued = train(3, "parts")
    roles = ("chief", "worker")[: distribution.num_workers]
    for role in roles:
        assert cluster.messages(role) == [f"continues after training step {whole.train_steps // 3}"]
    assert continued.train_steps == whole.train_steps
    assert continued.metrics == pytest.approx(whole.metrics, abs=1e-6)
    # One that was killed after its last save still has its metrics.
    again = train(3, "parts")
    assert again.metrics == pytest.approx(whole.metrics, abs=1e-6)
    assert not cluster.model.exists()


UNEVEN = """
import json, os, sys
sys.path.append(%r)
from model import build_model as digits_model
from tfx_distribute.trainer_module.training import epoch_runner

def build_model(context):
    # Without agreement, the two processes would divide the same steps into calls of very
    # different length.
    assert hasattr(epoch_runner, "CALL_SECONDS")
    epoch_runner.CALL_SECONDS = {"chief": 0.01, "worker": 5.0}[json.loads(os.environ["TF_CONFIG"])["task"]["type"]]
    return digits_model(context)
"""


def test_processes_agree_on_the_length_of_calls(cluster, tmp_path):
    (tmp_path / "own_uneven.py").write_text(UNEVEN % str(EXAMPLES / "digits"))
    result = cluster.train(
        Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
        TrainingOptions(32, train_steps=400),
        module=UserModule("own_uneven.build_model", (str(tmp_path),)),
    )
    assert result.train_steps == 400


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "return 3",
            "own_wrong.build_model returned builtins.int; return a compiled Keras 2 model, or a task with train_step",
        ),
        (
            "import tensorflow as tf; i = tf.keras.Input((64,)); return tf.keras.Model(i, tf.keras.layers.Dense(1)(i))",
            "own_wrong.build_model returned a model that is not compiled",
        ),
    ],
)
def test_anything_but_a_compiled_model_or_task_is_refused(cluster, tmp_path, body, message):
    (tmp_path / "own_wrong.py").write_text(f"def build_model(context):\n    {body}\n")
    with pytest.raises(TrainingError, match=message):
        cluster.train(module=UserModule("own_wrong.build_model", (str(tmp_path),)))
    assert not cluster.model.exists()


def test_examples_that_are_fewer_than_a_batch(cluster, digits):
    with pytest.raises(TrainingError, match="per_replica_batch_size: 2000 .* write at most 1400"):
        cluster.train(training_options=TrainingOptions(2000, epochs=1))
    assert not Path(cluster.job.outputs.result_file).exists()


def test_eval_split_may_be_missing(cluster, digits):
    result = cluster.train(training_options=TrainingOptions(64, train_steps=5), data=replace(digits, eval=None))
    assert set(result.metrics) == {"loss", "accuracy"}
