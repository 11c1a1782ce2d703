"""Tests an analysis of another one's result."""

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from apache_beam.testing.util import assert_that
from tensorflow_transform import beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from tfx_distribute.components.beam import deep_copy
from tfx_distribute.components.beam.direct_runner import DirectRunner


def test_an_analysis_of_an_analysis(tmp_path):
    def preprocessing_fn(inputs):
        cut = tf.minimum(inputs["x"], 2 * tft.mean(inputs["x"]))
        return {"scaled": tft.scale_to_z_score(cut), "word": tft.compute_and_apply_vocabulary(inputs["word"])}

    schema = schema_utils.schema_from_feature_spec(
        {"x": tf.io.FixedLenFeature([], tf.float32), "word": tf.io.FixedLenFeature([], tf.string)}
    )
    rows = [{"x": float(x), "word": "ab"[x % 2]} for x in (1, 2, 3, 4, 30)]
    cut = np.array([1.0, 2.0, 3.0, 4.0, 16.0])

    def check(found):
        assert sorted(row["scaled"] for row in found) == pytest.approx(list((cut - cut.mean()) / cut.std()), abs=1e-6)

    deep_copy.allow()
    # As TFX's Transform does.
    with beam.Pipeline(DirectRunner()) as pipeline, tft_beam.Context(str(tmp_path), use_deep_copy_optimization=True):
        data = (pipeline | beam.Create(rows), dataset_metadata.DatasetMetadata(schema))
        (transformed, _), _ = data | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
        assert_that(transformed, check)
