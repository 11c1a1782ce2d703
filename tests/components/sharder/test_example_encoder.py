"""Tests that equal record batches become equal bytes, for all kinds of features."""

import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_distribute.components.sharder.example_encoder import Encoder

BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([[1], [-2]], pa.large_list(pa.int64())),
        pa.array([[b"x" * 300], None], pa.large_list(pa.large_binary())),
        pa.array([[0.5, 1.5], []], pa.large_list(pa.float32())),
    ],
    ["number", "text", "values"],
)


def feature(**kinds):
    return tf.train.Feature(**kinds)


def test_content():
    first, second = map(tf.train.Example.FromString, Encoder(schema_pb2.Schema()).encode(BATCH))
    assert dict(first.features.feature) == {
        "number": feature(int64_list=tf.train.Int64List(value=[1])),
        "text": feature(bytes_list=tf.train.BytesList(value=[b"x" * 300])),
        "values": feature(float_list=tf.train.FloatList(value=[0.5, 1.5])),
    }
    assert second.features.feature["number"].int64_list.value == [-2]
    assert second.features.feature["text"].WhichOneof("kind") is None


@pytest.mark.parametrize("columns", [["number", "text", "values"], ["values", "number", "text"]])
def test_bytes_are_those_of_protobuf_in_the_order_of_names(columns):
    batch = pa.RecordBatch.from_arrays([BATCH.column(BATCH.schema.get_field_index(name)) for name in columns], columns)
    encoded = Encoder(schema_pb2.Schema()).encode(batch)
    assert encoded == [tf.train.Example.FromString(row).SerializeToString(deterministic=True) for row in encoded]


def test_ragged_columns():
    schema = text_format.Parse(
        """
        feature { name: "v" type: FLOAT } feature { name: "n" type: INT }
        tensor_representation_group { key: "" value { tensor_representation { key: "r" value { ragged_tensor {
          feature_path { step: "v" } partition { row_length: "n" } row_partition_dtype: INT64 } } } } }
        """,
        schema_pb2.Schema(),
    )
    nested = pa.array([[[1.0, 2.0], [3.0]], [[4.0]]], pa.large_list(pa.large_list(pa.float32())))
    rows = Encoder(schema).encode(pa.RecordBatch.from_arrays([nested], ["r"]))
    first = tf.train.Example.FromString(rows[0]).features.feature
    assert first["v"].float_list.value == [1.0, 2.0, 3.0]
    assert first["n"].int64_list.value == [2, 1]
    assert rows == [tf.train.Example.FromString(row).SerializeToString(deterministic=True) for row in rows]
