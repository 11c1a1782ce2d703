"""Tests the checks of a Sharder's output before training starts."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components import schemas
from tfx_distribute.components.trainer.input_splits import Splits
from tfx_distribute.trainer_module.data import shard_manifest
from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues, Manifest, ShardEntry, SplitEntry
from tfx_distribute.trainer_module.data.tfrecords import checksum
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

SCHEMA = 'feature { name: "x" type: INT }'
FEATURES = {"x": FeatureValues(-1, 9), "bad": FeatureValues(0.0, 1.0, 6)}


@pytest.fixture
def examples(tmp_path):
    """30 records in three shards, as a Sharder leaves them."""
    folder = tmp_path / "examples"
    (folder / "Split-train").mkdir(parents=True)
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    entries = []
    for shard in range(3):
        path = folder / "Split-train" / f"shard-{shard}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for number in range(10):
                writer.write(f"{shard} {number}".encode())
        name = str(path.relative_to(folder))
        entries.append(ShardEntry(name, 10, path.stat().st_size, checksum(str(path))))
    fingerprint = schemas.fingerprint(schemas.load_schema(None, str(tmp_path / "schema.pbtxt")))
    shard_manifest.write(Manifest(fingerprint, {"train": SplitEntry(30, tuple(entries), FEATURES)}), str(folder))
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = artifact_utils.encode_split_names(["train"])
    return artifact


@pytest.fixture
def shard(examples) -> Path:
    return Path(examples.uri, "Split-train", "shard-1.tfrecord")


def read(examples):
    return Splits([examples]).read(["train"], "train_args")


def test_shards_are_taken_as_the_manifest_says(examples):
    split = read(examples)
    assert (split.num_examples, split.sharded) == (30, True)
    assert [os.path.basename(file) for file in split.files] == [f"shard-{number}.tfrecord" for number in range(3)]


def test_truncated_shard_is_named_with_its_record(examples, shard):
    shard.write_bytes(shard.read_bytes()[:-3])
    with pytest.raises(
        DataError,
        match=f"^examples: {shard}, record 9 at byte 171: the file ends in the middle of it; .* 187 bytes of the 190",
    ):
        read(examples)


def test_shards_of_another_schema_are_refused(examples, tmp_path):
    splits = Splits([examples])
    splits.check_schema(None, str(tmp_path / "schema.pbtxt"))
    (tmp_path / "other.pbtxt").write_text(SCHEMA.replace("INT", "FLOAT"))
    with pytest.raises(
        DataError, match="^examples: the shards were made with another schema than .*other.pbtxt; regenerate"
    ):
        splits.check_schema(None, str(tmp_path / "other.pbtxt"))


def test_other_payloads_are_refused(examples):
    examples_utils.set_payload_format(examples, example_gen_pb2.PayloadFormat.FORMAT_PROTO)
    with pytest.raises(ConfigurationError, match="holds FORMAT_PROTO, not tf.Examples"):
        Splits([examples])


def test_damaged_files_without_a_manifest(examples, shard):
    Path(examples.uri, shard_manifest.FILE).unlink()
    changed = bytearray(shard.read_bytes())
    changed[4 * 19 + 13] ^= 1
    shard.write_bytes(changed)
    with pytest.raises(DataError, match=f"^examples: {shard}, record 4 at byte 76: it does not match its checksum"):
        read(examples)


def test_split_is_read_from_the_artifacts_that_have_it(examples, tmp_path):
    other = standard_artifacts.Examples()
    other.uri = str(tmp_path / "other")
    other.split_names = artifact_utils.encode_split_names(["eval", "train"])
    for split in ("train", "eval"):
        folder = tmp_path / "other" / f"Split-{split}"
        folder.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / "part")) as writer:
            writer.write(b"one")
    splits = Splits([examples, other])
    assert splits.names == {"train", "eval"}
    train, held_out = splits.read(["train"], "train_args"), splits.read(["eval"], "eval_args")
    assert (train.num_examples, len(train.files), train.sharded) == (31, 4, False)
    assert (held_out.num_examples, held_out.sharded) == (1, False)


def test_labels_and_weights_are_finite(examples):
    splits = Splits([examples])
    assert splits.read_ranges(["train"], "label", "x") == {"train": (-1, 9)}
    assert splits.read_ranges(["train"], "label", "text") == {}
    with pytest.raises(DataError, match="^example_weight: 6 examples have a 'bad' that is NaN or infinite .6 in the split"):
        splits.read_ranges(["train"], "example_weight", "bad")


def test_the_split_eval_has_labels_of_its_own(examples):
    manifest = shard_manifest.read(examples.uri)
    held_out = SplitEntry(0, (), {"x": FeatureValues(0, 12)})
    shard_manifest.write(replace(manifest, splits={"eval": held_out, **manifest.splits}), examples.uri)
    ranges = Splits([examples]).read_ranges(["train", "eval"], "label", "x")
    assert list(ranges.items()) == [("train", (-1, 9)), ("eval", (0, 12))]
