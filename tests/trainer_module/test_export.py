"""Calls the exported model with raw examples in every precision and Keras version."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from beam_arguments import IN_MEMORY
from tf_examples import make_example, make_schema, write_examples

from tfx_distribute.trainer_module import asking
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, Split, TrainingData, TrainingOptions, UserModule

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("exporting")]

TOLERANCES = {"float32": 1e-6, "mixed_float16": 2e-3, "mixed_bfloat16": 2e-2}
DISTANCES = np.array([[100_001.0], [70_000.5], [1.5]], np.float32)  # the first two are infinite in float16
ANGLES = np.array([[0.1, 0.2], [-0.3, 0.4], [0.5, 0.6]], np.float32)
KINDS, LABELS = np.array([[b"b"], [b"a"], [b"b"]], object), np.array([[0.0], [1.0], [0.0]], np.float32)

MODULE = """
import numpy as np
import tensorflow as tf

def build_model(context):
    if context.transform_output:
        context.transform_output.transform_features_layer()  # a module may use it too
    inputs = {name: tf.keras.Input(context.inputs[name].shape, name=name) for name in context.hparams["inputs"]}
    joined = tf.keras.layers.concatenate(list(inputs.values())) if len(inputs) > 1 else inputs["angles"]
    hidden = tf.keras.layers.Dense(4, activation="tanh")(joined)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(hidden))
    model.compile("sgd", "mse")
    return model

class Predict(tf.keras.callbacks.Callback):
    def __init__(self, hparams, names):
        super().__init__()
        self.features = {name: np.array(hparams[name], "float32") for name in names}
        self.file = hparams["file"]

    def on_train_end(self, logs=None):
        np.save(self.file, tf.cast(self.model(self.features, training=False), tf.float32).numpy())

def callbacks(context):
    return [Predict(context.hparams, context.hparams["inputs"])]
"""


def serialized(**features: np.ndarray) -> list[bytes]:
    """Returns one serialized tf.Example for each row."""
    rows = zip(*features.values(), strict=True)
    return [make_example(**dict(zip(features, row, strict=True))) for row in rows]


def write(folder: Path, columns: dict[str, np.ndarray]) -> Split:
    write_examples(folder / "examples", serialized(**columns))
    return Split((str(folder / "examples"),), 3)


def preprocessing_fn(inputs):
    import tensorflow_transform as tft

    # A request has neither the label's text nor a feature that the model does not read.
    label = tft.compute_and_apply_vocabulary(inputs["kind"], vocab_filename="kinds")
    return {
        "angles": inputs["angles"],
        "scaled": inputs["distance"] / 100_000.0,
        "label": tf.cast(label, tf.float32),
        "color_id": tft.compute_and_apply_vocabulary(inputs["color"]),
    }


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> TrainingData:
    """Untransformed examples."""
    folder = tmp_path_factory.mktemp("raw")
    (folder / "schema.pbtxt").write_text(make_schema(angles=("FLOAT", 2), label=("FLOAT", 1)))
    split = write(folder, {"angles": ANGLES, "label": ANGLES[:, :1]})
    return TrainingData(split, None, "label", None, str(folder / "schema.pbtxt"))


@pytest.fixture(scope="module")
def transformed(tmp_path_factory) -> TrainingData:
    """Transformed examples with TFT's transform graph, in the same folders as TFX's."""
    import apache_beam as beam
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.beam.tft_beam_io import WriteMetadata

    folder = tmp_path_factory.mktemp("transformed")
    spec = {
        "angles": tf.io.FixedLenFeature([2], tf.float32),
        "distance": tf.io.FixedLenFeature([1], tf.float32),
        "kind": tf.io.FixedLenFeature([1], tf.string),
        "color": tf.io.FixedLenFeature([1], tf.string),
    }
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    with (
        beam.Pipeline(argv=IN_MEMORY) as pipeline,
        tft_beam.Context(temp_dir=str(folder / "tmp")),
    ):
        row = {"angles": [0.0, 0.0], "distance": [0.0]}
        rows = pipeline | beam.Create([{**row, "kind": [kind], "color": [b"red"]} for kind in (b"b", b"b", b"a")])
        transform = (rows, metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = transform | tft_beam.WriteTransformFn(str(folder / "graph"))
        _ = metadata | WriteMetadata(str(folder / "graph" / "metadata"), pipeline)
    stored = {"angles": ANGLES, "scaled": DISTANCES / 100_000, "label": LABELS, "color_id": LABELS.astype(np.int64)}
    split = write(folder, stored)
    return TrainingData(split, None, "label", str(folder / "graph"), None)


@pytest.mark.parametrize(
    ("precision", "keras_version", "with_transform"),
    [
        ("float32", 2, False),
        ("mixed_float16", 3, True),
        ("mixed_bfloat16", 3, False),
    ],
)
def test_export_answers_raw_examples_as_the_model_does(
    cluster, request, tmp_path, raw, transformed, precision, keras_version, with_transform
):
    (tmp_path / "half.py").write_text(MODULE)
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")
    predicted, inputs = tmp_path / "predicted.npy", ["angles", "scaled"] if with_transform else ["angles"]
    sent = {"angles": ANGLES, "distance": DISTANCES} if with_transform else {"angles": ANGLES}
    whole = serialized(**sent, kind=KINDS, color=KINDS)
    write_examples(tmp_path / "whole", whole)
    cluster.train(
        Distribution("one_device", accelerator_type="cpu"),
        TrainingOptions(3, train_steps=1, precision=precision, keras_version=keras_version),
        module=UserModule("half.build_model", (str(tmp_path),)),
        data=transformed if with_transform else raw,
        raw_examples=(str(tmp_path / "whole"),),
        hparams={
            "file": str(predicted),
            "inputs": inputs,
            "angles": ANGLES.tolist(),
            "scaled": (DISTANCES / 100_000).tolist(),
        },
    )

    assert (cluster.model / asking.WARMUP_FILE).is_file(), "it was asked"
    signatures = tf.saved_model.load(str(cluster.model)).signatures
    served = signatures["serving_default"](examples=tf.constant(serialized(**sent)))["outputs"]
    assert served.dtype == tf.float32
    tolerance = TOLERANCES[precision]
    np.testing.assert_allclose(served.numpy(), np.load(predicted), rtol=tolerance, atol=tolerance)
    if with_transform:
        features = signatures["transform_features"](examples=tf.constant(whole))
        assert set(features) == {"angles", "scaled", "label", "color_id"}
        np.testing.assert_array_equal(features["label"].numpy(), LABELS)
        np.testing.assert_allclose(features["scaled"].numpy(), DISTANCES / 100_000, rtol=1e-6)


DECODED = (
    MODULE
    + """
def decode_features(features):
    decoded = dict(features)
    if "label" in features:
        decoded["label"] = features["label"] - 1.0
    return decoded
"""
)


@pytest.mark.parametrize("with_transform", [True, False], ids=["transformed", "raw"])
def test_exported_labels_are_those_of_training(cluster, tmp_path, raw, transformed, with_transform):
    (tmp_path / "decoded.py").write_text(DECODED)
    cluster.train(
        Distribution("one_device", accelerator_type="cpu"),
        TrainingOptions(3, train_steps=1),
        module=UserModule("decoded.build_model", (str(tmp_path),)),
        data=transformed if with_transform else raw,
        hparams={"file": str(tmp_path / "predicted.npy"), "inputs": ["angles"], "angles": ANGLES.tolist()},
    )
    signatures = tf.saved_model.load(str(cluster.model)).signatures
    stored = {"distance": DISTANCES, "kind": KINDS, "color": KINDS} if with_transform else {"label": ANGLES[:, :1]}
    name = "transform_features" if with_transform else "transformed_labels"
    labels = signatures[name](examples=tf.constant(serialized(angles=ANGLES, **stored)))["label"]
    expected = LABELS if with_transform else ANGLES[:, :1]
    np.testing.assert_allclose(labels.numpy(), expected - 1.0, rtol=1e-6)


OUTPUTS = """
import tensorflow as tf

OUTPUTS = {
    "nested": lambda inner, outer: {"head": {"p": outer, "h": [inner, None]}},
    "numbered": lambda inner, outer: {0: inner, 1: outer},
    "of_numbered_layers": lambda inner, outer: outer,
}

class Schedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    # Like that of TensorFlow's tutorial of the Transformer, without a get_config.
    def __call__(self, step):
        return tf.math.rsqrt(tf.cast(step, tf.float32) + 1.0)

class Model(tf.keras.Model):
    def __init__(self, outputs):
        super().__init__()
        self.inner, self.outer = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
        self.outputs_of = OUTPUTS[outputs]
        self.emptied = []
        self.emptied = None
        if outputs == "of_numbered_layers":
            self.numbered = {0: self.inner}

    def call(self, features, training=False):
        inner = self.inner(features["angles"])
        return self.outputs_of(inner, self.outer(inner))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.add_n([tf.reduce_mean(tf.square(part)) for part in tf.nest.flatten(y_pred) if part is not None])

def build_model(context):
    if context.hparams["outputs"] == "of_a_hidden_name":
        inputs = tf.keras.Input((2,), name="angles")
        hidden = tf.keras.layers.Dense(1, name="_rows")  # as Keras names a layer of a class _Rows
        model = tf.keras.Model({"angles": inputs}, hidden(inputs))
        model.compile("sgd", "mse")
        return model
    model = Model(context.hparams["outputs"])
    model.compile(tf.keras.optimizers.Adam(Schedule()))
    return model
"""


@pytest.mark.parametrize(
    ("outputs", "keras_version", "names"),
    [
        ("nested", 2, {"head_p", "head_h_0"}),
        ("numbered", 3, {"0", "1"}),
    ],
)
def test_outputs_in_any_structure_are_served(cluster, request, tmp_path, raw, outputs, keras_version, names):
    """Also with a schedule that Keras cannot save."""
    train_outputs(cluster, request, tmp_path, raw, outputs, keras_version)
    exported = tf.saved_model.load(str(cluster.model))
    assert set(exported.signatures["serving_default"].structured_outputs) == names


@pytest.mark.parametrize(
    ("outputs", "keras_version", "message"),
    [
        ("numbered", 2, "module: the model returns a dictionary with keys that are not texts"),
        ("of_numbered_layers", 3, "module: TensorFlow cannot save model.numbered: .* contains a non-string key"),
        ("of_a_hidden_name", 3, "module: the variable _rows/kernel has a name that begins with _, from its layer"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_training(
    cluster, request, tmp_path, raw, outputs, keras_version, message
):
    with pytest.raises(TrainingError, match=message):
        train_outputs(cluster, request, tmp_path, raw, outputs, keras_version)
    assert not any(progress.step for _, progress in cluster.reports)


def train_outputs(cluster, request, tmp_path, raw, outputs, keras_version=2):
    (tmp_path / f"outputs_{outputs}.py").write_text(OUTPUTS)
    if keras_version == 3:
        cluster.server = request.getfixturevalue("keras_3_server")
    cluster.train(
        Distribution("one_device", accelerator_type="cpu"),
        TrainingOptions(3, train_steps=1, keras_version=keras_version),
        module=UserModule(f"outputs_{outputs}.build_model", (str(tmp_path),)),
        data=raw,
        hparams={"outputs": outputs},
    )
