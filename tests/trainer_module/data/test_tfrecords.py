"""Tests that damage is found in TFRecord files that TensorFlow wrote."""

import gzip
import itertools

import pytest
import tensorflow as tf
from tf_examples import make_example, write_examples

from tfx_distribute.trainer_module.data import read_errors, tfrecords
from tfx_distribute.trainer_module.errors import DataError

SIZE = 8 + 4 + 10 + 4  # bytes of each record in the file


@pytest.fixture
def file(tmp_path):
    """Writes ten records of ten bytes."""
    path = tmp_path / "examples"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(10):
            writer.write(f"record {number:3d}".encode())
    return path


def flip(path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_whole_file(file):
    assert list(tfrecords.scan(str(file))) == [f"record {number:3d}".encode() for number in range(10)]


@pytest.mark.parametrize(
    ("offset", "what"), [(15, "it does not match its checksum"), (0, "its length does not match its checksum")]
)
def test_flipped_bit(file, offset, what):
    flip(file, 3 * SIZE + offset)
    records = tfrecords.scan(str(file))
    assert list(itertools.islice(records, 3)) == [b"record   0", b"record   1", b"record   2"]
    with pytest.raises(DataError, match=f"^{file}, record 3 at byte {3 * SIZE}: {what}$"):
        next(records)


@pytest.mark.parametrize(("kept", "what"), [(5, "in the middle of its length"), (20, "in the middle of it")])
def test_truncated_file(file, kept, what):
    file.write_bytes(file.read_bytes()[: 7 * SIZE + kept])
    assert tfrecords.first_damage(str(file)) == f"{file}, record 7 at byte {7 * SIZE}: the file ends {what}"


def test_damaged_gzip(file, tmp_path):
    zipped = tmp_path / "examples.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    assert tfrecords.first_damage(str(zipped)) == ""
    zipped.write_bytes(zipped.read_bytes()[:-12])
    assert "cannot be uncompressed" in tfrecords.first_damage(str(zipped))


def test_tensorflow_agrees(file):
    """TensorFlow stops at the same damage; its message does not say where."""
    flip(file, 3 * SIZE + 15)
    with pytest.raises(tf.errors.DataLossError) as raised:
        list(tf.data.TFRecordDataset(str(file)))
    with pytest.raises(DataError, match=rf"^examples: {file}, record 3 at byte 78: it does not match its checksum; make"):
        read_errors.explain(raised.value, [str(file)])


@pytest.mark.parametrize(
    ("feature", "what"),
    [
        ({}, r"Feature: x \(y\) \(data type: int64\) is required but could not be found.$"),
        ({"x (y)": 1.0}, r"Key: x \(y\), Index: 0.  Data types don't match. .*"),
        ({"x (y)": [1, 2]}, r"Key: x \(y\), Index: 0.  Number of int64 values != expected. .*"),
    ],
)
def test_record_that_does_not_match_the_schema(tmp_path, feature, what):
    path = tmp_path / "examples"
    right = {"x (y)": 1}
    write_examples(path, [make_example(word=["one", "two"], **features) for features in (right, right, feature)])
    schema = {"x (y)": tf.io.FixedLenFeature([1], tf.int64)}
    batch = tf.data.TFRecordDataset(str(path)).batch(3).map(lambda records: tf.io.parse_example(records, schema))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        list(batch)
    with pytest.raises(DataError, match=rf"^examples: {path}, record 2 does not match the schema: {what}"):
        read_errors.explain(raised.value, [str(path)], schema)


def test_other_errors_are_left_alone(file):
    read_errors.explain(tf.errors.DataLossError(None, None, "of something else"), [str(file)])
