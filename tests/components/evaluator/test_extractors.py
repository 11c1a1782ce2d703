import numpy as np
import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from tfx import types  # noqa: F401 (TFMA 0.52 has an EvalConfig only once TFX is imported)

from tfx_distribute.components.evaluator import extractors

VALUES = np.array([[0.5]])


@pytest.mark.parametrize(
    ("labels", "models", "predictions", "expected"),
    [
        ({"label_keys": {"price": "y"}}, 1, VALUES, {"price": VALUES}),
        ({"label_keys": {"price": "y"}}, 1, {"price": VALUES, "unit": VALUES}, {"price": VALUES, "unit": VALUES}),
        ({"label_key": "y"}, 1, VALUES, VALUES),
        ({"label_keys": {"price": "y"}}, 2, {"new": VALUES, "old": VALUES}, {m: {"price": VALUES} for m in ("new", "old")}),
    ],
)
def test_the_only_output_has_the_name_that_its_label_has(labels, models, predictions, expected):
    config = json_format.ParseDict({"model_specs": [labels] * models}, tfma.EvalConfig())
    assert extractors.name_outputs({"predictions": predictions, "labels": 1}, config) == {
        "predictions": expected,
        "labels": 1,
    }
