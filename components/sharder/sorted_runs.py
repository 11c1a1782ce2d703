"""Sorting more examples than memory holds: sorted runs in files, of which each shard reads its part.

Every example has a key, drawn from the seed and its place in the input. Sorted by it, examples are in an order that is
random, and the same whatever process handled which of them. A run is a file of some examples, sorted; what it holds of a
range of keys lies together in it. A bucket is a range of keys: all those with the same first bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

BUCKET_BITS = 12
BUCKETS = 1 << BUCKET_BITS

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_FILE_BITS, _RECORD_BITS = 20, 36  # of a position; the rest tells the split


def positions(split: int, file: int, first_record: int, count: int) -> Positions:
    """The places of consecutive records in the input: of which split, in which of its files, the how many-th."""
    start = split << (_FILE_BITS + _RECORD_BITS) | file << _RECORD_BITS | first_record
    return np.arange(start, start + count, dtype=np.int64)


def split_of(of: Positions) -> int:
    """The split of positions that are all of one."""
    return int(of[0]) >> (_FILE_BITS + _RECORD_BITS)


def keys(of: Positions, seed: int) -> Keys:
    """The keys of examples: no two have the same.

    SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195): a one-to-one mixing of 64 bits.
    """
    with np.errstate(over="ignore"):
        mixed = _mix(np.array([seed], np.uint64))[0] ^ of.astype(np.uint64)
        return _mix(mixed)


def _mix(value: Keys) -> Keys:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@dataclass(frozen=True)
class Run:
    """A file of examples of one split, sorted by key.

    Each bucket that is not empty is a block of it: how many examples, their keys, their sizes, themselves. So consecutive
    buckets are one read, of not a byte too many.

    Attributes:
      path: The file.
      split: Number of the split.
      counts: Examples in each bucket.
      ends: Where in the file each bucket ends.
      num_bytes: Bytes of the examples.
    """

    path: str
    split: int
    counts: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]
    num_bytes: int


def write(path: str, split: int, of: Keys, examples: Sequence[bytes]) -> Run:
    """Sorts examples by key and writes them: less than 4 GiB."""
    order = np.argsort(of)
    ordered, sorted_keys = [examples[index] for index in order.tolist()], of[order]
    counts = np.bincount((of >> np.uint64(64 - BUCKET_BITS)).astype(np.int64), minlength=BUCKETS)
    ends, last, position, num_bytes = [], 0, 0, 0
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        for count in counts.tolist():
            if count:
                first, last = last, last + count
                lengths = np.fromiter(map(len, ordered[first:last]), np.uint64, count)
                header = np.concatenate([np.array([count], np.uint64), sorted_keys[first:last], lengths])
                file.write(b"".join([header.tobytes(), *ordered[first:last]]))
                num_bytes += int(lengths.sum())
                position += header.nbytes + int(lengths.sum())
            ends.append(position)
    return Run(path, split, counts.astype(np.uint32), np.array(ends, np.uint32), num_bytes)


def read(run: Run, first_bucket: int, end_bucket: int) -> tuple[list[Keys], list[bytes]]:
    """The examples of some consecutive buckets of a run, and their keys."""
    begin, end = int(run.ends[first_bucket - 1]) if first_bucket else 0, int(run.ends[end_bucket - 1])
    if begin == end:
        return [], []
    with FileSystems.open(run.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.seek(begin)
        content = file.read(end - begin)
    of, examples, position = [], [], 0
    while position < len(content):
        count = int(np.frombuffer(content, np.uint64, 1, position)[0])
        of.append(np.frombuffer(content, np.uint64, count, position + 8))
        begins = position + 8 * (2 * count + 1)
        offsets = np.cumsum(np.frombuffer(content, np.uint64, count, position + 8 * (count + 1))) + np.uint64(begins)
        for stop in offsets.tolist():
            examples.append(content[begins:stop])
            begins = stop
        position = begins
    return of, examples


def merged(runs: Sequence[Run], first: int, count: int, at_once: int) -> Iterator[list[bytes]]:
    """The `count` examples from number `first` on in the order of all runs' keys, about `at_once` at a time."""
    totals = np.sum([run.counts for run in runs], axis=0, dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(totals)])  # examples before each bucket
    bucket = int(np.searchsorted(before, first, side="right")) - 1
    end = first + count
    while before[bucket] < end:
        after = max(bucket + 1, int(np.searchsorted(before, before[bucket] + at_once, side="right")) - 1)
        of: list[Keys] = []
        examples: list[bytes] = []
        for run in runs:
            of_run, examples_of_run = read(run, bucket, after)
            of += of_run
            examples += examples_of_run
        order = np.argsort(np.concatenate(of))[max(0, first - before[bucket]) : end - before[bucket]]
        yield [examples[index] for index in order.tolist()]
        bucket = after
        if bucket == BUCKETS:
            return
