"""Compares the examples of TFRecord files value by value."""

import gzip
import math

import pytest
import tensorflow as tf
from ingestion import rows

from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import DataError


def example(integers, floats, texts) -> bytes:
    feature = {
        "integer": tf.train.Feature(int64_list=tf.train.Int64List(value=integers)),
        "float": tf.train.Feature(float_list=tf.train.FloatList(value=floats)),
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=texts)),
        "nothing": tf.train.Feature(),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def sequence_example() -> bytes:
    """Returns a message with its context in the field of a tf.Example's features."""
    sequence = tf.train.SequenceExample()
    sequence.context.feature["x"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["steps"].feature.add().int64_list.value.append(2)
    return sequence.SerializeToString()


def test_examples_arrive_with_the_same_values(tmp_path):
    (tmp_path / "data").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "data" / "a")) as writer:
        writer.write(example([0, -(2**63)], [0.0, -0.0], [b"", "Zoë".encode()]))
        writer.write(example([2**63 - 1], [math.nan, math.inf], [b"\xff\x00"]))
    with tf.io.TFRecordWriter(str(tmp_path / "data" / "b.gz"), "GZIP") as writer:
        writer.write(example([], [], []))
    found = sorted(map(str, rows(Data(tfrecord=str(tmp_path / "data")), tmp_path / "out")))
    expected = [
        {"float": [0.0, -0.0], "integer": [0, -(2**63)], "nothing": None, "text": [b"", "Zoë".encode()]},
        {"float": [math.nan, math.inf], "integer": [2**63 - 1], "nothing": None, "text": [b"\xff\x00"]},
        {"float": None, "integer": None, "nothing": None, "text": None},
    ]
    assert found == sorted(map(str, expected))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text, not records at all", "a, record 0 at byte 0: its length does not match its checksum"),
        (b"\xff\xff\xff", "a, record 0 is not a tf.Example"),
        (b"hello world", "a, record 0 is not a tf.Example: Error parsing message"),
        (b"text here", "a, record 0 is not a tf.Example: Error parsing message"),
        (sequence_example(), "a, record 0 is not a tf.Example: it has fields that a tf.Example does not have"),
    ],
)
def test_files_that_hold_something_else(tmp_path, content, message):
    if "tf.Example" in message:
        with tf.io.TFRecordWriter(str(tmp_path / "a")) as writer:
            writer.write(content)
    else:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=message):
        rows(Data(tfrecord=str(tmp_path / "a")), tmp_path / "out")


def test_gzipped_file_that_ends_early(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 10_000)[:20])
    with pytest.raises(DataError, match=r"a\.gz, record 0 at byte 0: cannot be uncompressed"):
        rows(Data(tfrecord=str(tmp_path / "a.gz")), tmp_path / "out")
