"""Tests that messages about unreadable examples name the file and the record."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from tf_examples import write_examples

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import Distribution, Split, TrainingOptions

pytestmark = pytest.mark.e2e

SHAPES = [
    Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    Distribution("parameter_server", num_workers=1, accelerator_type="cpu"),
]


@pytest.fixture
def shards(digits, tmp_path) -> Split:
    """Returns the training examples in four shards."""
    files = [str(tmp_path / f"shard-{number}") for number in range(4)]
    records = list(tf.data.TFRecordDataset(digits.train.files, "GZIP").as_numpy_iterator())
    for number, file in enumerate(files):
        write_examples(file, records[number::4])
    return Split(tuple(files), 1400, sum(map(os.path.getsize, files)), sharded=True)


@pytest.mark.parametrize("distribution", SHAPES, ids=lambda distribution: distribution.strategy)
def test_flipped_bit(cluster, digits, shards, distribution):
    path = Path(shards.files[2])
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    message = rf"examples: {path}, record 349 at byte \d+: it does not match its checksum; make the examples again"
    with pytest.raises(TrainingError, match=message):
        cluster.train(distribution, TrainingOptions(16, epochs=2), data=replace(digits, train=shards))


def test_shard_that_went_missing(cluster, digits, shards):
    Path(shards.files[3]).unlink()
    with pytest.raises(TrainingError, match=rf"examples: {shards.files[3]} is missing; make the examples again"):
        cluster.train(training_options=TrainingOptions(16, epochs=1), data=replace(digits, train=shards))
