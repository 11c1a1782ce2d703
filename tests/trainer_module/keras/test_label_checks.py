from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras import label_checks
from tfx_distribute.trainer_module.keras.model_adapters import factory

LOSSES = tf.keras.losses
SPARSE, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"


def own_loss(label, prediction):
    return tf.reduce_mean(prediction)


def features(label, dtype=tf.int64, functions=()):
    names = [label] if isinstance(label, str) else label.values()
    return SimpleNamespace(
        label=label, decoded={name: tf.io.FixedLenFeature([], dtype) for name in names}, functions=functions
    )


def compiled(loss, outputs=1):
    inputs = tf.keras.Input((2,), name="x")
    layers = [tf.keras.layers.Dense(3, name=name)(inputs) for name in "ab"[:outputs]]
    model = tf.keras.Model(inputs, layers if outputs > 1 else layers[0])
    model.compile("sgd", loss)
    return factory.make(model, "f")


def check(loss, ranges, label="y", outputs=1, **options):
    by_split = {name: {"train": limits} for name, limits in ranges.items()}
    compiled(loss, outputs).check_labels(features(label, **options), by_split)


@pytest.mark.parametrize("loss", [SPARSE, LOSSES.SparseCategoricalCrossentropy(), LOSSES.sparse_categorical_crossentropy])
@pytest.mark.parametrize(("low", "high"), [(0, 3), (-1, 2)])
def test_a_label_is_a_class_of_the_model(loss, low, high):
    check(loss, {"y": (0, 2)})
    check(loss, {})
    with pytest.raises(ConfigurationError, match=f"^label: 'y' has values from {low} to {high} in .* the classes 0 to 2; "):
        check(loss, {"y": (low, high)})


def test_a_label_of_two_classes_is_0_to_1():
    check(LOSSES.BinaryCrossentropy(), {"y": (0.1, 1.0)})
    with pytest.raises(ConfigurationError, match="^label: 'y' has values from -1 to 1 in .* is for 0 to 1"):
        check(BINARY, {"y": (-1, 1)})


@pytest.mark.parametrize("losses", [{"a": "mse", "b": SPARSE}, ["mse", SPARSE]])
def test_each_label_is_checked_for_its_loss(losses):
    label = {"b": "digit", "a": "size"}
    check(losses, {"size": (-9, 9), "digit": (0, 2)}, label=label, outputs=2)
    with pytest.raises(ConfigurationError, match="^label: 'digit' has values from 0 to 9"):
        check(losses, {"size": (-9, 9), "digit": (0, 9)}, label=label, outputs=2)


def by_key(scores, best):
    return {"scores": scores, "best": best}


def by_layer(scores, best):
    return [best, scores]


@pytest.mark.parametrize("library", [tf.keras, keras], ids=["Keras 2", "Keras 3"])
@pytest.mark.parametrize(
    ("outputs", "losses", "label"),
    [
        (by_key, {"scores": SPARSE}, {"scores": "y"}),
        (by_key, {"scores": SPARSE}, "y"),
        (by_key, {"scores": SPARSE, "best": None}, {"scores": "y"}),
        (by_key, ["mse", SPARSE], {"scores": "y", "best": "z"}),
        (by_layer, {"dense": SPARSE, "lambda": None}, {"dense": "y"}),
        (by_layer, [None, SPARSE], {"dense": "y"}),
        (by_layer, [None, SPARSE], "y"),
    ],
    ids=["keys", "keys, one label", "keys, None", "sorted keys", "layers", "list", "list, one label"],
)
def test_the_classes_are_those_of_the_output_that_a_loss_is_for(library, outputs, losses, label):
    library.backend.clear_session()  # so that layers have the names `dense` and `lambda`
    inputs = library.Input((2,))
    scores = library.layers.Dense(8)(inputs)
    best = library.layers.Lambda(lambda values: values[:, :1], output_shape=(1,))(scores)
    model = library.Model(inputs, outputs(scores, best))
    model.compile("sgd", losses)
    label_checks.check_ranges(model, features(label), {"y": {"train": (0, 7), "eval": (1, 7)}, "z": {"train": (-9, 9)}})
    with pytest.raises(ConfigurationError, match="from 0 to 8 in the split 'train', .* classes 0 to 7; number the classes"):
        label_checks.check_ranges(model, features(label), {"y": {"train": (0, 8)}})


def test_a_class_that_only_the_split_eval_has():
    model = compiled(SPARSE)
    message = (
        "^label: 'y' has values from -1 to 2 in the split 'eval', and the model has outputs for the classes 0 to 2; a "
        "vocabulary gives -1 to a class that the split 'train' has no example of: add examples"
    )
    with pytest.raises(ConfigurationError, match=message):
        model.check_labels(features("y"), {"y": {"train": (0, 2), "eval": (-1, 2)}})
    with pytest.raises(ConfigurationError, match="from -1 to 1 in the split 'train', .*; number the classes from 0"):
        model.check_labels(features("y"), {"y": {"train": (-1, 1), "eval": (-1, 1)}})


def test_each_output_of_one_layer_is_known():
    """Keras 3 gives them one name."""
    inputs = keras.Input((6,))
    halves = keras.layers.Lambda(lambda x: (x[:, :2], x[:, 2:]), output_shape=((2,), (4,)))(inputs)
    model = keras.Model(inputs, list(halves))
    model.compile("sgd", [SPARSE, "mse"])
    label_checks.check_ranges(model, features("y"), {"y": {"train": (0, 1)}})
    with pytest.raises(ConfigurationError, match="classes 0 to 1;"):
        label_checks.check_ranges(model, features("y"), {"y": {"train": (0, 3)}})


def test_a_text_label_is_refused_for_a_loss_of_keras():
    with pytest.raises(ConfigurationError, match="^label: 'y' is text, .* tft.compute_and_apply_vocabulary"):
        check("mse", {}, dtype=tf.string)
    check(own_loss, {}, dtype=tf.string)


@pytest.mark.parametrize(
    ("loss", "functions"),
    [(own_loss, ()), ("mse", ()), (LOSSES.SparseCategoricalCrossentropy(ignore_class=-1), ()), (SPARSE, ("decode",))],
    ids=["own", "mse", "ignored class", "decoded"],
)
def test_other_labels_may_have_any_value(loss, functions):
    check(loss, {"y": (-1, 9)}, functions=functions)
