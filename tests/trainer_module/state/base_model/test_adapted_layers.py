from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.job.warm_start import WarmStart
from tfx_distribute.trainer_module.state.base_model import model_weights, saved_models, warm_start


def test_vocabularies_are_no_weights(tmp_path):
    lookup = tf.keras.layers.StringLookup()
    lookup.adapt(["a", "b"])
    layers = [tf.keras.Input((1,), dtype=tf.string), lookup, tf.keras.layers.Embedding(4, 2, name="words")]
    model = tf.keras.Sequential(layers)
    assert [weight.path for weight in model_weights.list_weights(model)] == ["words/embeddings"]
    saved_models.name_weights(model)
    model.save(tmp_path / "model", save_format="tf")
    assert [weight.name for weight in saved_models.read(str(tmp_path / "model"))[0]] == ["words/embeddings"]
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path / "model")(tf.constant([["b"]])), model(tf.constant([["b"]])))


def make_model_with_adapted_layers(words: list[str], numbers: np.ndarray) -> tf.keras.Model:
    """Returns a model with layers whose state has as many entries as their data."""
    layers = tf.keras.layers
    text, number = tf.keras.Input((1,), name="text", dtype=tf.string), tf.keras.Input((1,), name="number")
    adapted = [
        layers.TextVectorization(output_mode="tf_idf", max_tokens=9),
        layers.StringLookup(),
        layers.Discretization(num_bins=4),
    ]
    for layer, data in zip(adapted, (words, words, numbers), strict=True):
        layer.adapt(data)
    vectorization, lookup, discretization = adapted
    embedded = [layers.Embedding(9, 3)(lookup(text)), layers.Embedding(4, 3)(discretization(number))]
    features = layers.Concatenate()([vectorization(text), *map(layers.Flatten(), embedded)])
    model = tf.keras.Model({"text": text, "number": number}, layers.Dense(2, name="head")(features))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("kind", ["saved_model", "export", "x.keras"])
def test_state_of_adapted_layers_is_that_of_build_model(tmp_path, kind):
    """As their vocabularies; Keras does not know how large it is before it is read."""
    tf.keras.backend.clear_session()
    base = make_model_with_adapted_layers(["a b", "b c"], np.arange(30.0)[:, None])
    path = str(tmp_path / kind)
    if kind == "export":
        base.export(path)
    else:
        base.save(path, **({"save_format": "tf"} if kind == "saved_model" else {}))
    tf.keras.backend.clear_session()
    model = make_model_with_adapted_layers(["b d", "d f", "d", "d b"], np.arange(70.0)[:, None] * 3)
    adapted = [layer for layer in model.layers if hasattr(layer, "adapt")]
    before = [np.asarray(layer([["d"]] if hasattr(layer, "get_vocabulary") else [[100.0]])) for layer in adapted]
    job = SimpleNamespace(base_model=path, warm_start=WarmStart())
    result = warm_start.apply(job, model, model.optimizer, None, tf.distribute.get_strategy())
    assert (result.weights_taken, result.weights_skipped) == (4, 0)
    for name in ("embedding", "embedding_1", "head"):
        for weight, value in zip(model.get_layer(name).get_weights(), base.get_layer(name).get_weights(), strict=True):
            np.testing.assert_array_equal(weight, value)
    after = [np.asarray(layer([["d"]] if hasattr(layer, "get_vocabulary") else [[100.0]])) for layer in adapted]
    assert len(adapted) == 3
    np.testing.assert_equal(after, before)
