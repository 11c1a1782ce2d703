import numpy as np
import pytest
import tensorflow as tf
from tf_examples import make_example

from tfx_distribute.trainer_module import export
from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.example_functions import ExampleFunctions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.training_job import Split, TrainingData, UserModule

SCHEMA = """
feature { name: "image" type: BYTES presence { min_fraction: 1 } shape { } }
feature { name: "mask" type: BYTES presence { min_fraction: 1 } shape { } }
feature { name: "text" type: BYTES presence { min_fraction: 1 } shape { } }
feature { name: "ids" type: INT }
"""
SEEDS = tf.constant([[0, 1], [0, 2]], tf.int64)


def png(value: int) -> bytes:
    return tf.io.encode_png(np.full((2, 2, 1), value, np.uint8)).numpy()


def batch() -> dict:
    return {
        "image": tf.constant([png(10), png(20)]),
        "text": tf.constant(["a b c", "d"]),
        "ids": tf.sparse.from_dense([[1, 2], [3, 0]]),
        "rows": tf.ragged.constant([[1.0], [2.0, 3.0]]),
    }


def decode_image(encoded):
    return tf.ensure_shape(tf.io.decode_image(encoded, channels=1, expand_animations=False), [2, 2, 1])


@pytest.fixture
def data(tmp_path) -> TrainingData:
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    return TrainingData(Split((), 1), None, "mask", None, str(tmp_path / "schema.pbtxt"))


def test_decodes_values_of_every_type():
    def decode(features):
        return {
            "image": decode_image(features["image"]),
            "words": tf.strings.split(features["text"]),
            "ids": features["ids"],
            "rows": features["rows"] * 2.0,
        }

    decoded = ExampleFunctions(decode).decode_batch(batch())
    assert decoded["image"].shape == (2, 2, 2, 1)
    assert decoded["image"].numpy()[:, 0, 0, 0].tolist() == [10, 20]
    assert decoded["words"].to_list() == [[b"a", b"b", b"c"], [b"d"]]
    assert tf.sparse.to_dense(decoded["ids"]).numpy().tolist() == [[1, 2], [3, 0]]
    assert decoded["rows"].to_list() == [[2.0], [4.0, 6.0]]


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (lambda features: features["image"], "decode_features returns a"),
        (lambda features: {"image": tf.io.decode_image(features["image"])}, "tf.image.resize"),
    ],
)
def test_names_results_that_are_no_features(decode, message):
    with pytest.raises(ConfigurationError, match=message):
        ExampleFunctions(decode).decode_batch(batch())


def augmented(augment, label) -> tuple:
    """Returns the augmented features and, if there is one, the label of a batch."""
    given = batch() if label is None else {**batch(), "label": label}

    def split(example):
        inputs = {name: value for name, value in example.items() if name != "label"}
        return (inputs, example["label"]) if "label" in example else (inputs,)

    return ExampleFunctions(augment=augment).split_batch(given, split, SEEDS)


@pytest.mark.parametrize("label", [None, tf.constant([[1.0], [2.0]]), {"a": tf.constant([1, 2]), "b": tf.constant([3, 4])}])
def test_augments_with_any_label(label):
    def augment(features, label, seed):
        label = tf.nest.map_structure(lambda value: value + 1, label) if label is not None else None
        return {**features, "rows": features["rows"] + tf.cast(seed[1], tf.float32)}, label

    features, *labels = augmented(augment, label)
    assert features["rows"].to_list() == [[2.0], [4.0, 5.0]]
    assert tf.sparse.to_dense(features["ids"]).numpy().tolist() == [[1, 2], [3, 0]]
    assert len(labels) == (label is not None)
    for before, after in zip(tf.nest.flatten(label), tf.nest.flatten(labels), strict=False):
        assert np.array_equal(after, before + 1)


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda features, label, seed: features, "return features, label"),
        (lambda features, label, seed: ({}, label), "changes the type of the features"),
        (lambda features, label, seed: (features, tf.cast(label, tf.float64)), "changes the type of the label: float32"),
        (lambda features, label, seed: (features, tf.tile(label, [2])), r"changes the type of the label: float32\[1\]"),
    ],
)
def test_names_what_an_augmentation_must_not_change(augment, message):
    with pytest.raises(ConfigurationError, match=message):
        augmented(augment, tf.constant([[1.0], [2.0]]))


def test_functions_with_other_arguments(tmp_path):
    (tmp_path / "without_seed.py").write_text("def build_model(context): pass\n\ndef augment(features, label): pass\n")
    with pytest.raises(
        ConfigurationError, match=r"augment takes other arguments; write def augment\(features, label, seed\)"
    ):
        example_functions.load(UserModule("without_seed.build_model", (str(tmp_path),)))


def test_loads_functions_that_the_module_has(tmp_path):
    (tmp_path / "with_decode.py").write_text(
        "def build_model(context): pass\n\n"
        "def decode_features(features):\n"
        "    if features['x'] > 1.0:\n"  # needs AutoGraph
        "        return {'x': 1.0}\n"
        "    return {'x': features['x']}\n"
    )
    functions = example_functions.load(UserModule("with_decode.build_model", (str(tmp_path),)))
    assert functions.decode
    assert not functions.augment
    assert functions.decode_batch({"x": tf.constant([0.5, 2.0])})["x"].numpy().tolist() == [0.5, 1.0]


def write_module(folder, text: str) -> UserModule:
    name = f"functions_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text("import tensorflow as tf\n\ndef build_model(context): pass\n\n" + text)
    return UserModule(f"{name}.build_model", (str(folder),))


TABLE = """
NUMBERS = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), -1.0)

def decode_features(features):
    features["number"] = NUMBERS.lookup(features.pop("text"))
    features["mask"] = features.get("mask")
    return features
"""


def served(model, features, folder, **values: bytes) -> list[float]:
    """Returns the answer of an exported model to a request."""
    export.export(model, features, str(folder / "model"))
    serve = tf.saved_model.load(str(folder / "model")).signatures["serving_default"]
    return serve(tf.constant([make_example(**values)]))["outputs"].numpy().ravel().tolist()


def test_exports_lookup_tables(data, tmp_path):
    """The function changes the dictionary that it gets, and finds no label."""
    features = Features(data, example_functions.load(write_module(tmp_path, TABLE))).select({"number"})
    number = tf.keras.Input((), name="number")
    model = tf.keras.Model({"number": number}, tf.keras.layers.Rescaling(2.0)(number))
    assert served(model, features, tmp_path, image=b"", text=b"b") == [4.0]


def test_a_request_needs_no_label(data, tmp_path):
    """The label is an image that is decoded, too."""

    def decode(features):
        masks = {"mask": decode_image(features["mask"])} if "mask" in features else {}
        return {"image": tf.cast(decode_image(features["image"]), tf.float32), **masks}

    features = Features(data, ExampleFunctions(decode)).select({"image"})
    assert features.inputs() == {"image": tf.io.FixedLenFeature([2, 2, 1], tf.float32)}
    assert features.decoded["mask"].dtype == tf.uint8
    image = tf.keras.Input((2, 2, 1), name="image")
    model = tf.keras.Model({"image": image}, tf.keras.layers.Rescaling(2.0)(image))
    assert served(model, features, tmp_path, image=png(30), text=b"") == [60.0] * 4


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (lambda features: {"image": features["mask"], "mask": features["text"]}, "reads a label or weight .mask., which"),
        (lambda features: dict(features, twice=features["image"]) if "mask" in features else features, "'twice'"),
    ],
)
def test_names_what_a_request_lacks(data, decode, message):
    with pytest.raises(ConfigurationError, match=message):
        Features(data, ExampleFunctions(decode)).select({"twice"} if "twice" in message else {"image"})


def test_the_label_is_a_decoded_feature(data):
    with pytest.raises(ConfigurationError, match="label: the examples have no feature 'mask'; they have image"):
        Features(data, ExampleFunctions(lambda features: {"image": features["image"]}))
