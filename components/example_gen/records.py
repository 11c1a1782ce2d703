"""Reads TFRecord files of tf.Examples, which are copied as they are."""

import itertools
from collections.abc import Iterable, Iterator

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.errors import DataError

_BATCH_BYTES = 4 << 20


def read(file: str, number: int, num_parts: int) -> Iterator[list[bytes]]:
    """Reads every `num_parts`-th record of a TFRecord file, in batches."""
    return to_batches(itertools.islice(_scan(file), number, None, num_parts))


def to_batches(contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields lists of contents, each of a few MiB or of one that is larger."""
    batch, size = [], 0
    for content in contents:
        batch.append(content)
        size += len(content)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _scan(file: str) -> Iterator[bytes]:
    for position, record in enumerate(tfrecords.scan(file)):
        if position == 0:
            _check_is_example(record, file)
        yield record


def _check_is_example(record: bytes, file: str) -> None:
    """Parses a record strictly: protobuf accepts bytes that it reads only in part."""
    example = tf.train.Example()
    try:
        # With protobuf 3; later ones refuse these.
        if example.MergeFromString(record) < len(record):
            raise DecodeError("Error parsing message with type 'tensorflow.Example'")
        size = example.ByteSize()
        example.DiscardUnknownFields()
        if example.ByteSize() < size:
            raise DecodeError("it has fields that a tf.Example does not have")
    except DecodeError as error:
        raise DataError(f"{file}, record 0 is not a tf.Example: {error}") from error
