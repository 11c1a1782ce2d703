import json

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.training.base_model import checkpoints, names


def test_vocabularies_are_no_weights(tmp_path):
    lookup = tf.keras.layers.StringLookup()
    lookup.adapt(["a", "b"])
    layers = [tf.keras.Input((1,), dtype=tf.string), lookup, tf.keras.layers.Embedding(4, 2, name="words")]
    model = tf.keras.Sequential(layers)
    assert [names.path_of(weight) for weight in names.weights_of(model)] == ["words/embeddings"]
    model.save(tmp_path / "model", save_format="tf")
    checkpoints.write_paths(model, str(tmp_path / "model"))
    written = json.loads((tmp_path / "model" / checkpoints.PATHS_FILE).read_text())
    assert list(written.values()) == ["words/embeddings"]
    np.testing.assert_array_equal(tf.saved_model.load(tmp_path / "model")(tf.constant([["b"]])), model(tf.constant([["b"]])))
