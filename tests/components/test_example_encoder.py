"""Tests that equal record batches become equal bytes, for all kinds of features."""

import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfx_distribute.components.example_encoder import encode
from tfx_distribute.trainer_module.errors import ConfigurationError


def encode_with_protobuf(row):
    example = tf.train.Example()
    for (name, values), kind in zip(row.items(), ("int64_list", "bytes_list", "float_list"), strict=True):
        if values is not None:
            getattr(example.features.feature[name], kind).SetInParent()
            getattr(example.features.feature[name], kind).value.extend(values)
        example.features.feature[name].SetInParent()
    return example.SerializeToString(deterministic=True)


def lists(values):
    return st.none() | st.lists(values, max_size=3)


ROWS = st.tuples(
    lists(st.integers(-(2**63), 2**63 - 1)),
    lists(st.binary() | st.integers(100, 20_000).map(bytes)),
    lists(st.floats(width=32)),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS, max_size=6), st.integers(0, 3))
def test_bytes_are_those_of_protobuf(rows, first):
    names = ["number", "a" * 160, "ß"]
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    types = map(pa.large_list, (pa.int64(), pa.large_binary(), pa.float32()))
    arrays = [pa.array(column, column_type) for column, column_type in zip(columns, types, strict=True)]
    encoded = encode(pa.RecordBatch.from_arrays(arrays, names).slice(first))
    assert encoded == [encode_with_protobuf(dict(zip(names, row, strict=True))) for row in rows[first:]]


def test_lists_of_lists_are_refused():
    nested = pa.array([[[1.0, 2.0], [3.0]], [[4.0]]], pa.large_list(pa.large_list(pa.float32())))
    with pytest.raises(ConfigurationError, match="the feature 'r' is a list of lists"):
        encode(pa.RecordBatch.from_arrays([nested], ["r"]))
