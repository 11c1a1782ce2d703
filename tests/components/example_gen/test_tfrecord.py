"""Compares the examples of TFRecord files byte by byte."""

import gzip
import math

import numpy as np
import pytest
import tensorflow as tf
from ingestion import rows
from tf_examples import make_example, write_examples

from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.trainer_module.errors import DataError


def sequence_example() -> bytes:
    """Returns a message with its context in the field of a tf.Example's features."""
    sequence = tf.train.SequenceExample()
    sequence.context.feature["x"].int64_list.value.append(1)
    sequence.feature_lists.feature_list["steps"].feature.add().int64_list.value.append(2)
    return sequence.SerializeToString()


def test_examples_are_copied_as_they_are(tmp_path):
    (tmp_path / "data").mkdir()
    examples = [
        make_example(z=[0, -(2**63)], a=[0.0, -0.0, math.nan], text=[b"", "Zoë", b"\xff\x00"]),
        make_example(a=np.array([], np.float32)),
        tf.train.Example(features=tf.train.Features(feature={"untyped": tf.train.Feature()})).SerializeToString(),
    ]
    write_examples(tmp_path / "data" / "a", examples[:2])
    write_examples(tmp_path / "data" / "b.gz", examples[2:], "GZIP")
    rows(Data(tfrecord=str(tmp_path / "data"), splits={"train": 1}), tmp_path / "out")
    files = [str(file) for file in tmp_path.glob("out/Split-train/*")]
    assert sorted(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()) == sorted(examples)


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
        write_examples(tmp_path / "a", [content])
    else:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=message):
        rows(Data(tfrecord=str(tmp_path / "a")), tmp_path / "out")


def test_gzipped_file_that_ends_early(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 10_000)[:20])
    with pytest.raises(DataError, match=r"a\.gz, record 0 at byte 0: cannot be uncompressed"):
        rows(Data(tfrecord=str(tmp_path / "a.gz")), tmp_path / "out")
