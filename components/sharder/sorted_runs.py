"""Sorts more examples than memory holds, by way of sorted runs in files.

Every example has a key, drawn from the seed and from its place in the input. The order
of the keys is random, and the same whichever process handled an example. A run is a
file with some of the examples, sorted by key. A bucket is a range of keys, all those
with the same first bits; in a run, the examples of a bucket are contiguous. Each shard
reads its part of every run.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from tfx_distribute.components import example_encoder
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

    The file has all keys, then the sizes of all examples, then the examples.

    Attributes:
      split: Number of the split.
      starts: Number of examples before each bucket, and of all. Shape [BUCKETS + 1].
      offsets: Size of the examples before each bucket, and of all. Shape [BUCKETS + 1].
      features: Name of a numeric feature -> its values in the examples.
    """

    path: str
    split: int
    starts: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    features: Mapping[str, FeatureValues] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return int(self.starts[-1])

    @property
    def num_bytes(self) -> int:
        """Size of the examples, without keys and sizes."""
        return int(self.offsets[-1])


def write(path: str, split: int, keys: Keys, examples: Sequence[bytes]) -> Run:
    """Sorts serialized examples by their keys and writes them to a file."""
    order = np.argsort(keys)
    examples = [examples[index] for index in order.tolist()]
    sizes = np.fromiter(map(len, examples), np.int64, len(examples))
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write(keys[order].tobytes())
        file.write(sizes.tobytes())
        file.writelines(examples)
    counts = np.bincount((keys >> np.uint64(64 - BUCKET_BITS)).astype(np.int64), minlength=BUCKETS)
    starts = example_encoder.cumulative(counts)
    return Run(path, split, starts, example_encoder.cumulative(sizes)[starts])


def read(run: Run, first_bucket: int, end_bucket: int) -> tuple[Keys, list[bytes]]:
    """Reads the keys and examples from `first_bucket` to before `end_bucket`."""
    first, end = (int(run.starts[bucket]) for bucket in (first_bucket, end_bucket))
    start, stop = (int(run.offsets[bucket]) for bucket in (first_bucket, end_bucket))

    def read_part(position: int, size: int) -> bytes:
        file.seek(position)
        return bytes(file.read(size))

    with FileSystems.open(run.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        keys = np.frombuffer(read_part(8 * first, 8 * (end - first)), np.uint64)
        sizes = np.frombuffer(read_part(8 * (run.num_examples + first), 8 * (end - first)), np.int64)
        content = read_part(16 * run.num_examples + start, stop - start)
    ends = example_encoder.cumulative(sizes).tolist()
    return keys, [content[begin:end] for begin, end in itertools.pairwise(ends)]


def read_merged(runs: Sequence[Run], first: int, count: int, batch_size: int) -> Iterator[list[bytes]]:
    """Reads examples in the order of the keys of all runs.

    Yields batches of about `batch_size` consecutive examples, from the one with number
    `first` in that order. `runs` are all runs of a split.
    """
    before = np.sum([run.starts for run in runs], axis=0)  # examples before each bucket
    bucket = int(np.searchsorted(before, first, side="right")) - 1
    end = first + count
    last_bucket = int(np.searchsorted(before, end))  # the one after the bucket of the last example
    while bucket < last_bucket:
        end_bucket = max(bucket + 1, int(np.searchsorted(before, before[bucket] + batch_size, side="right")) - 1)
        end_bucket = min(end_bucket, last_bucket)
        keys, examples_of_runs = zip(*(read(run, bucket, end_bucket) for run in runs), strict=True)
        examples = list(itertools.chain(*examples_of_runs))
        order = np.argsort(np.concatenate(keys))[max(0, first - before[bucket]) : end - before[bucket]]
        yield [examples[index] for index in order.tolist()]
        bucket = end_bucket
