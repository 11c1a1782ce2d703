from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.keras.model_adapters import factory

LOSSES = tf.keras.losses
SPARSE, BINARY = "sparse_categorical_crossentropy", "binary_crossentropy"


def own_loss(label, prediction):
    return tf.reduce_mean(prediction)


def features(dtype=tf.int64, functions=()):
    return SimpleNamespace(label="y", decoded={"y": tf.io.FixedLenFeature([], dtype)}, functions=functions)


def compiled(loss, outputs=1):
    inputs = tf.keras.Input((2,), name="x")
    layers = [tf.keras.layers.Dense(3, name=name)(inputs) for name in "ab"[:outputs]]
    model = tf.keras.Model(inputs, layers if outputs > 1 else layers[0])
    model.compile("sgd", loss)
    return factory.make(model, "f")


def check(loss, ranges, outputs=1, **options):
    by_split = {name: {"train": limits} for name, limits in ranges.items()}
    compiled(loss, outputs).check_labels(features(**options), by_split)


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


def test_a_class_that_only_the_split_eval_has():
    message = "^label: 'y' has values from -1 to 2 in the split 'eval', .*; a vocabulary gives -1 to a class that its"
    with pytest.raises(ConfigurationError, match=message):
        compiled(SPARSE).check_labels(features(), {"y": {"train": (0, 2), "eval": (-1, 2)}})


def test_a_text_label_is_refused_for_a_loss_of_keras():
    with pytest.raises(ConfigurationError, match="^label: 'y' is text, .* tft.compute_and_apply_vocabulary"):
        check("mse", {}, dtype=tf.string)
    check(own_loss, {}, dtype=tf.string)


@pytest.mark.parametrize("loss", [{"a": SPARSE, "b": "mse"}, [SPARSE, "mse"]])
def test_of_several_losses_none_is_checked(loss):
    check(loss, {"y": (-1, 9)}, outputs=2)


@pytest.mark.parametrize(
    ("loss", "functions"),
    [(own_loss, ()), ("mse", ()), (LOSSES.SparseCategoricalCrossentropy(ignore_class=-1), ()), (SPARSE, ("decode",))],
    ids=["own", "mse", "ignored class", "decoded"],
)
def test_other_labels_may_have_any_value(loss, functions):
    check(loss, {"y": (-1, 9)}, functions=functions)
