"""Tests which predictions of a model can be served."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module import export
from tfx_distribute.trainer_module.errors import ConfigurationError


class Unnamed(tf.keras.Model):
    def call(self, features):
        return {"same": features, "different": features}


def test_checking_predictions_reads_no_transform_graph():
    """Every training process does it, in the scope of its strategy."""
    features = SimpleNamespace(label={"same": "same_label", "different": "different_label"})
    value = tf.TensorSpec([None, 1])
    unnamed = Unnamed()
    assert unnamed.output_names is None
    export.check_prediction(unnamed, features, {"same": value, "different": value})
    for prediction, message in (
        ({"same": [value], "same_0": value}, "two of the model's outputs would be served as same_0; return"),
        ({"rows": tf.RaggedTensorSpec([None, None])}, "the model returns rows, a RaggedTensor, which cannot be served"),
        (None, "the model returns no prediction; return"),
    ):
        with pytest.raises(ConfigurationError, match=f"module: {message}"):
            export.check_prediction(unnamed, features, prediction)


def test_the_argument_of_signatures_has_the_name_of_no_column():
    """TFMA would give the column to the signature."""
    assert export._name_argument({"x"}) == "examples"
    assert export._name_argument({"x", "examples"}) == "serialized_examples"
