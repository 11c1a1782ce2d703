"""Checks TFRecord files for damage and says which record is damaged, and how.

TensorFlow does the actual reading, but when it meets damage it does not say where.
Source of the format:
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import base64
import gzip
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any

import google_crc32c
import tensorflow as tf

from tfx_distribute.trainer_module.errors import DataError

HEADER = struct.Struct("<QI")  # length of the record, masked checksum of the length
CHECKSUM_BLOCK = 4 << 20
FOOTER = struct.Struct("<I")  # masked checksum of the record


def is_gzipped(file: str) -> bool:
    """Returns True if a file is gzipped, judging by its name as TFX and Beam do."""
    return file.endswith(".gz")


def scan(file: str) -> Iterator[bytes]:
    """Yields the records of a file.

    `file` is a path or address. A file whose name ends in `.gz` is gzipped. Raises
    DataError at a record that is damaged, with the place of its first byte in the
    uncompressed file.
    """
    number = offset = 0
    with tf.io.gfile.GFile(file, "rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if is_gzipped(file) else raw
        while True:
            try:
                record = _read_record(stream)
            except (OSError, EOFError, zlib.error, _DamageError) as error:
                what = error if isinstance(error, _DamageError) else f"cannot be uncompressed ({error})"
                raise DataError(f"{file}, record {number} at byte {offset}: {what}") from error
            if record is None:
                return
            yield record
            number += 1
            offset += HEADER.size + len(record) + FOOTER.size


def checksum(path: str) -> str:
    """Returns a file's CRC32C in base64, as shown by `gcloud storage hash`."""
    crc32c = google_crc32c.Checksum()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(CHECKSUM_BLOCK):
            crc32c.update(block)
    return base64.b64encode(crc32c.digest()).decode()


def first_damage(file: str) -> str:
    """Names the first damaged record of a file; returns "" if the file is intact."""
    try:
        for _ in scan(file):
            pass
    except DataError as error:
        return str(error)
    return ""


class _DamageError(Exception):
    """A record is damaged in the way that the message says."""


def _read_record(stream: IO[bytes]) -> bytes | None:
    header = stream.read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise _DamageError("the file ends in the middle of its length")
    length, checksum = HEADER.unpack(header)
    if checksum != _masked(header[:8]):
        raise _DamageError("its length does not match its checksum")
    record, footer = stream.read(length), stream.read(FOOTER.size)
    if len(record) + len(footer) < length + FOOTER.size:
        raise _DamageError("the file ends in the middle of it")
    if FOOTER.unpack(footer)[0] != _masked(record):
        raise _DamageError("it does not match its checksum")
    return record


def _masked(content: bytes) -> int:
    checksum: int = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
