"""Looking into TFRecord files: whether they are whole, and if not, which record is damaged and how.

Reading them is TensorFlow's; it stops at damage without saying where. Source of the format:
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
    """A place where a file cannot be read.

    Attributes:
      file: The file.
      record: Number of the record, from 0.
      offset: Where it begins, in bytes; of the uncompressed content.
      what: What is wrong there.
      ends: Whether nothing behind it can be read.
    """

    file: str
    record: int
    offset: int
    what: str
    ends: bool

    def __str__(self) -> str:
        return f"{self.file}, record {self.record} at byte {self.offset}: {self.what}"


def is_gzipped(file: str) -> bool:
    """Whether a file is gzipped: by its name, as TFX and Beam decide it."""
    return file.endswith(".gz")


def scan(file: str) -> Iterator[bytes | Damage]:
    """The records of a file, and in place of those that are damaged what is wrong with them."""
    number = offset = 0
    with tf.io.gfile.GFile(file, "rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if is_gzipped(file) else raw
        while True:
            try:
                found = _next(stream)
            except (OSError, EOFError, zlib.error) as error:
                yield Damage(file, number, offset, f"cannot be uncompressed ({error})", ends=True)
                return
            if found is None:
                return
            record, what, ends = found
            yield Damage(file, number, offset, what, ends) if what else record
            if ends:
                return
            number += 1
            offset += HEADER.size + len(record) + FOOTER.size


def checksum(path: str) -> str:
    """CRC32C of a file in base64, as object stores show it (`gcloud storage hash`)."""
    found = google_crc32c.Checksum()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(CHECKSUM_BLOCK):
            found.update(block)
    return base64.b64encode(found.digest()).decode()


def first_damage(file: str) -> Damage | None:
    """The first damaged place of a file; None where it is whole."""
    return next((found for found in scan(file) if isinstance(found, Damage)), None)


def _next(stream: IO[bytes]) -> tuple[bytes, str, bool] | None:
    """The next record, what is wrong with it, and whether that is the end; None at the end of the file."""
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
