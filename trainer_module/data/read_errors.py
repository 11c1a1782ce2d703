"""Turns TensorFlow's read errors into messages that name the file and the record."""

import itertools
import re
from collections.abc import Sequence

import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.data.feature_specs import FeatureSpec
from tfx_distribute.trainer_module.errors import DataError

REMEDY = "make the examples again, or set max_corrupt_records to the number that may be left out"
PARSED_AT_ONCE = 4096


def explain(
    error: tf.errors.OpError, files: Sequence[str], features: FeatureSpec | None = None, remedy: str = REMEDY
) -> None:
    """Searches the files for the cause of a read error.

    Returns without raising if the files are fine: the cause is then somewhere else.

    Args:
      error: The error that TensorFlow raised.
      files: The files that were read.
      features: Feature spec that their examples should match; None skips that check.
      remedy: What to do about a damaged file; part of the message.

    Raises:
      DataError: A file is missing or damaged, or a record does not match `features`.
    """
    if isinstance(error, tf.errors.DataLossError):
        for file in files:
            if damage := tfrecords.first_damage(file):
                raise DataError(f"examples: {damage}; {remedy}") from error
    elif isinstance(error, tf.errors.NotFoundError):
        missing = [file for file in files if not tf.io.gfile.exists(file)]
        if missing:
            raise DataError(f"examples: {missing[0]} is missing; make the examples again") from error
    elif isinstance(error, tf.errors.InvalidArgumentError) and features is not None and "ParseExample" in error.message:
        for file in files:
            _check_records(file, features, error)


def _check_records(file: str, features: FeatureSpec, error: tf.errors.OpError) -> None:
    records, first = tfrecords.scan(file), 0
    # In batches, since millions of good records may come before the bad one.
    while batch := [record for record in itertools.islice(records, PARSED_AT_ONCE) if isinstance(record, bytes)]:
        try:
            tf.io.parse_example(tf.constant(batch), features)
        except tf.errors.InvalidArgumentError:
            _check_one_by_one(file, first, batch, features, error)
        first += len(batch)


def _check_one_by_one(
    file: str, first: int, batch: Sequence[bytes], features: FeatureSpec, error: tf.errors.OpError
) -> None:
    for number, record in enumerate(batch, first):
        try:
            tf.io.parse_single_example(record, features)
        except tf.errors.InvalidArgumentError as mismatch:
            feature = re.search(r"(?:Key|Feature): (.+?)(?: \[Op:.*)?$", mismatch.message, re.MULTILINE)
            reason = f"feature {feature[1]}" if feature else mismatch.message
            raise DataError(f"examples: {file}, record {number} does not match the schema: {reason}") from error
