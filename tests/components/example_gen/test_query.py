"""Tests that TFX's BigQuery ExampleGen keeps zero, false and empty values.

docs/data.md promises this.
"""

import tensorflow as tf
from tfx.extensions.google_cloud_big_query.utils import row_to_example


def test_bigquery_rows_arrive_as_they_are():
    kinds = {
        "integer": "INTEGER",
        "float": "FLOAT",
        "flag": "BOOLEAN",
        "text": "STRING",
        "many": "INTEGER",
        "null": "STRING",
    }
    row = {"integer": 0, "float": 0.0, "flag": False, "text": "", "many": [0, -(2**63), 2**63 - 1], "null": None}
    features = row_to_example(kinds, row).features.feature
    assert list(features["integer"].int64_list.value) == [0]
    assert list(features["float"].float_list.value) == [0.0]
    assert list(features["flag"].int64_list.value) == [0]
    assert list(features["text"].bytes_list.value) == [b""]
    assert list(features["many"].int64_list.value) == row["many"]
    assert features["null"] == tf.train.Feature()
