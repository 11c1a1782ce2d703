"""Sorts more examples than memory holds, by way of sorted runs in files.

Every example has a key, drawn from the seed and from its place in the input. The order
of the keys is random, and the same whichever process handled an example. A run is a
file with some of the examples, sorted by key. A bucket is a range of keys, all those
with the same first bits; in a run, the examples of a bucket are contiguous. Each shard
reads its part of every run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues

BUCKET_BITS = 12
BUCKETS = 1 << BUCKET_BITS

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

# Bits of a position for the file and the record; the bits above them hold the split.
_FILE_BITS, _RECORD_BITS = 20, 36


def make_positions(split: int, file: int, first_record: int, count: int) -> Positions:
    """Returns a unique position for each of `count` consecutive records."""
    start = split << (_FILE_BITS + _RECORD_BITS) | file << _RECORD_BITS | first_record
    return np.arange(start, start + count, dtype=np.int64)


def split_number(positions: Positions) -> int:
    """Returns the split of positions, which must all be of the same one."""
    return int(positions[0]) >> (_FILE_BITS + _RECORD_BITS)


def draw_keys(positions: Positions, seed: int) -> Keys:
    """Returns the keys of examples, which are as distinct as their positions.

    SplitMix64 (Steele, Lea and Flood 2014, https://doi.org/10.1145/2660193.2660195): a
    one-to-one mixing of 64 bits.
    """
    with np.errstate(over="ignore"):
        mixed = _mix(np.array([seed], np.uint64))[0] ^ positions.astype(np.uint64)
        return _mix(mixed)


def _mix(value: Keys) -> Keys:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@dataclass(frozen=True)
class Run:
    """A file of examples of one split, sorted by key.

    Each bucket that is not empty is a block of the file: the number of its examples,
    their keys, their sizes, and the examples. Consecutive buckets can therefore be read
    at once, without reading a byte too many.

    Attributes:
      split: Number of the split.
      counts: Number of examples in each bucket. Shape [BUCKETS].
      ends: Offset in the file at which each bucket ends, in bytes. Shape [BUCKETS].
      num_bytes: Size of the examples, without keys and sizes.
      features: Name of a numeric feature -> its values in the examples.
    """

    path: str
    split: int
    counts: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint64]
    num_bytes: int
    features: Mapping[str, FeatureValues] = field(default_factory=dict)


def write(path: str, split: int, keys: Keys, examples: Sequence[bytes]) -> Run:
    """Sorts serialized examples by their keys and writes them to a file."""
    order = np.argsort(keys)
    sorted_examples, sorted_keys = [examples[index] for index in order.tolist()], keys[order]
    counts = np.bincount((keys >> np.uint64(64 - BUCKET_BITS)).astype(np.int64), minlength=BUCKETS)
    ends, last, position, num_bytes = [], 0, 0, 0
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        for count in counts.tolist():
            if count:
                first, last = last, last + count
                sizes = np.fromiter(map(len, sorted_examples[first:last]), np.uint64, count)
                header = np.concatenate([np.array([count], np.uint64), sorted_keys[first:last], sizes])
                file.write(b"".join([header.tobytes(), *sorted_examples[first:last]]))
                num_bytes += int(sizes.sum())
                position += header.nbytes + int(sizes.sum())
            ends.append(position)
    return Run(path, split, counts.astype(np.uint32), np.array(ends, np.uint64), num_bytes)


def read(run: Run, first_bucket: int, end_bucket: int) -> tuple[list[Keys], list[bytes]]:
    """Reads the buckets from `first_bucket` to before `end_bucket`.

    Returns the keys of each bucket that is not empty, and the examples of all.
    """
    begin, end = int(run.ends[first_bucket - 1]) if first_bucket else 0, int(run.ends[end_bucket - 1])
    if begin == end:
        return [], []
    with FileSystems.open(run.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.seek(begin)
        content = file.read(end - begin)
    keys, examples, position = [], [], 0
    while position < len(content):
        count = int(np.frombuffer(content, np.uint64, 1, position)[0])
        keys.append(np.frombuffer(content, np.uint64, count, position + 8))
        start = position + 8 * (2 * count + 1)
        sizes = np.frombuffer(content, np.uint64, count, position + 8 * (count + 1))
        for stop in (np.cumsum(sizes) + np.uint64(start)).tolist():
            examples.append(content[start:stop])
            start = stop
        position = start
    return keys, examples


def read_merged(runs: Sequence[Run], first: int, count: int, batch_size: int) -> Iterator[list[bytes]]:
    """Reads examples in the order of the keys of all runs.

    Yields batches of about `batch_size` consecutive examples, from the one with number
    `first` in that order. `runs` are all runs of a split.
    """
    bucket_counts = np.sum([run.counts for run in runs], axis=0, dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(bucket_counts)])  # examples before each bucket
    bucket = int(np.searchsorted(before, first, side="right")) - 1
    end = first + count
    last_bucket = int(np.searchsorted(before, end))  # the one after the bucket of the last example
    while bucket < last_bucket:
        end_bucket = max(bucket + 1, int(np.searchsorted(before, before[bucket] + batch_size, side="right")) - 1)
        end_bucket = min(end_bucket, last_bucket)
        keys: list[Keys] = []
        examples: list[bytes] = []
        for run in runs:
            run_keys, run_examples = read(run, bucket, end_bucket)
            keys += run_keys
            examples += run_examples
        order = np.argsort(np.concatenate(keys))[max(0, first - before[bucket]) : end - before[bucket]]
        yield [examples[index] for index in order.tolist()]
        bucket = end_bucket
