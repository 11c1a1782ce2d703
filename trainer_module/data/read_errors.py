"""Turns TensorFlow's read errors into messages that name the file and the record."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.data.feature_specs import FeatureSpec
from tfx_distribute.trainer_module.errors import DataError

MAX_SHOWN, MAX_LENGTH = 5, 20  # values that a message names, and characters of each
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
        tf.io.parse_single_example(record, features)
    except tf.errors.InvalidArgumentError as mismatch:
        feature = re.search(r"Key: (?P<name>.+?)\.  |Feature: (?P<other>.+?) \(data type", mismatch.message)
        reason = _describe_mismatch(record, feature["name"] or feature["other"]) if feature else mismatch.message
        raise DataError(f"examples: {file}, record {number} does not match the schema: {reason}") from error


def _describe_mismatch(record: bytes, name: str) -> str:
    """Describes the values of a feature that does not match the schema.

    Names values of other features too, by which the example can be found in its source.
    """
    features = tf.train.Example.FromString(record).features.feature
    kind, values = _values(features[name]) if name in features else ("", [])
    found = f"{len(values)} {kind} value{'s' if len(values) > 1 else ''}" if values else "no value"
    others = [f"{other}={_shorten(_values(features[other])[1])}" for other in sorted(features) if other != name]
    shown = ", ".join(others[:MAX_SHOWN]) + (", ..." if len(others) > MAX_SHOWN else "")
    return f"feature {name!r} has {found}" + (f", in the example with {shown}" if shown else "")


def _values(feature: tf.train.Feature) -> tuple[str, list[Any]]:
    kind = feature.WhichOneof("kind")
    return (kind.removesuffix("_list"), list(getattr(feature, kind).value)) if kind else ("", [])


def _shorten(values: list[Any]) -> str:
    first = values[0] if values else ""
    text = (
        first.decode(errors="replace")
        if isinstance(first, bytes)
        else f"{first:g}"
        if isinstance(first, float)
        else str(first)
    )
    return text[:MAX_LENGTH] + ("..." if len(text) > MAX_LENGTH or len(values) > 1 else "")
