"""Turns TensorFlow's read errors into messages that name the file and the record."""

import itertools
import re
from collections.abc import Sequence

import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.data.feature_specs import FeatureSpec
from tfx_distribute.trainer_module.errors import DataError

PARSED_AT_ONCE = 4096


def explain(error: tf.errors.OpError, files: Sequence[str], features: FeatureSpec | None = None) -> None:
    """Raises DataError if the files have the cause of a read error.

    It names what is missing, damaged, or does not match the spec `features`, if there
    is one.
    """
    if isinstance(error, tf.errors.DataLossError):
        for file in files:
            if damage := tfrecords.first_damage(file):
                raise DataError(f"examples: {damage}; make the examples again") from error
    elif isinstance(error, tf.errors.NotFoundError):
        missing = [file for file in files if not tf.io.gfile.exists(file)]
        if missing:
            raise DataError(f"examples: {missing[0]} is missing; make the examples again") from error
    elif isinstance(error, tf.errors.InvalidArgumentError) and features is not None and "ParseExample" in error.message:
        for file in files:
            _check_records(file, features, error)


def _check_records(file: str, features: FeatureSpec, error: tf.errors.OpError) -> None:
    records, number = tfrecords.scan(file), 0
    # In batches, since millions of good records may come before the bad one.
    while batch := list(itertools.islice(records, PARSED_AT_ONCE)):
        try:
            tf.io.parse_example(tf.constant(batch), features)
        except tf.errors.InvalidArgumentError:
            for position, record in enumerate(batch):
                _check_record(file, number + position, record, features, error)
        number += len(batch)


def _check_record(file: str, number: int, record: bytes, features: FeatureSpec, error: tf.errors.OpError) -> None:
    try:
        tf.io.parse_example([record], features)
    except tf.errors.InvalidArgumentError as mismatch:
        reason = re.sub(r"\{\{.*?\}\} |Name: <unknown>, | \[Op:\w+\]", "", mismatch.message)
        raise DataError(f"examples: {file}, record {number} does not match the schema: {reason}") from error
