"""What TensorFlow says when examples cannot be read -> which record of which file it is."""

import itertools
import re
from collections.abc import Sequence

import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.data.feature_specs import FeatureSpec
from tfx_distribute.trainer_module.errors import DataError

REMEDY = "make the examples anew, or write max_corrupt_records for how many may be left out"
PARSED_AT_ONCE = 4096


def explain(
    error: tf.errors.OpError, files: Sequence[str], features: FeatureSpec | None = None, remedy: str = REMEDY
) -> None:
    """Looks for what was wrong in the files that were read.

    Args:
      error: What TensorFlow raised.
      files: The files.
      features: What their examples should hold.
      remedy: What to do about a damaged file.

    Raises:
      DataError: That was it. Nothing is raised where the files are as they should be.
    """
    if isinstance(error, tf.errors.DataLossError):
        for file in files:
            if damage := tfrecords.first_damage(file):
                raise DataError(f"examples: {damage}; {remedy}") from error
    elif isinstance(error, tf.errors.NotFoundError):
        missing = [file for file in files if not tf.io.gfile.exists(file)]
        if missing:
            raise DataError(f"examples: {missing[0]} is missing; make the examples anew") from error
    elif isinstance(error, tf.errors.InvalidArgumentError) and features is not None and "ParseExample" in error.message:
        for file in files:
            _check_records(file, features, error)


def _check_records(file: str, features: FeatureSpec, error: tf.errors.OpError) -> None:
    found, first = tfrecords.scan(file), 0
    # Many at once, since the one may be behind millions that are as they should be.
    while batch := [record for record in itertools.islice(found, PARSED_AT_ONCE) if isinstance(record, bytes)]:
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
            found = re.search(r"(?:Key|Feature): (.+?)(?: \[Op:.*)?$", mismatch.message, re.MULTILINE)
            what = f"feature {found[1]}" if found else mismatch.message
            raise DataError(f"examples: {file}, record {number} does not match the schema: {what}") from error
