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
from dataclasses import dataclass
from typing import IO, Any

import google_crc32c
import tensorflow as tf

HEADER = struct.Struct("<QI")  # length of the record, masked checksum of the length
CHECKSUM_BLOCK = 4 << 20
FOOTER = struct.Struct("<I")  # masked checksum of the record


@dataclass(frozen=True)
class Damage:
    """A record that cannot be read; `offset` is its first byte, uncompressed."""

    file: str
    record: int
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, record {self.record} at byte {self.offset}: {self.what}"


def is_gzipped(file: str) -> bool:
    """Returns True if a file is gzipped, judging by its name as TFX and Beam do."""
    return file.endswith(".gz")


def scan(file: str) -> Iterator[bytes | Damage]:
    """Yields the records of a file, with a `Damage` in place of each damaged one.

    `file` is a path or address. A file whose name ends in `.gz` is gzipped.
    """
    number = offset = 0
    with tf.io.gfile.GFile(file, "rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if is_gzipped(file) else raw
        while True:
            try:
                result = _read_record(stream)
            except (OSError, EOFError, zlib.error) as error:
                yield Damage(file, number, offset, f"cannot be uncompressed ({error})")
                return
            if result is None:
                return
            record, problem, ends = result
            yield Damage(file, number, offset, problem) if problem else record
            if ends:
                return
            number += 1
            offset += HEADER.size + len(record) + FOOTER.size


def checksum(path: str) -> str:
    """Returns a file's CRC32C in base64, as shown by `gcloud storage hash`."""
    crc32c = google_crc32c.Checksum()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(CHECKSUM_BLOCK):
            crc32c.update(block)
    return base64.b64encode(crc32c.digest()).decode()


def first_damage(file: str) -> Damage | None:
    """Returns the first damage in a file; None if the file is intact."""
    return next((record for record in scan(file) if isinstance(record, Damage)), None)


def _read_record(stream: IO[bytes]) -> tuple[bytes, str, bool] | None:
    """Reads the next record; returns None at the end of the file.

    Also returns its problem ("" if intact), and True if nothing after it can be read.
    """
    header = stream.read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        return b"", "the file ends in the middle of its length", True
    length, checksum = HEADER.unpack(header)
    if checksum != _masked(header[:8]):
        return b"", "its length does not match its checksum", True
    record, footer = stream.read(length), stream.read(FOOTER.size)
    if len(record) + len(footer) < length + FOOTER.size:
        return record, "the file ends in the middle of it", True
    if FOOTER.unpack(footer)[0] != _masked(record):
        return record, "it does not match its checksum", False
    return record, "", False


def _masked(content: bytes) -> int:
    checksum: int = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
