"""Plans how a split is divided into shards, and which part each process reads.

The examples of a split have one order, whoever reads them: example `g` of a split with
`n` shards is number `g // n` of shard `g % n`. Of `r` processes, number `i` reads the
examples with `g % r == i`. If `r` divides `n`, each process has shards of its own;
otherwise `sharing` processes share each shard, record by record.
"""

import math
from dataclasses import dataclass

from tfx_distribute.trainer_module.job.training_job import InputOptions

SHARD_BYTES = 128 << 20  # most in a shard, if the number of shards is not set
MAX_OPEN_FILES = InputOptions.cycle_length
# So that 2, 4, 8 or 16 processes have their own files, and read several at a time.
MIN_SHARDS = 16


def num_shards(num_examples: int, num_bytes: int, num_readers: int) -> int:
    """Chooses the number of shards of a split."""
    at_least = max(MIN_SHARDS, math.ceil(num_bytes / SHARD_BYTES))
    per_reader = math.ceil(at_least / num_readers)
    if per_reader > MAX_OPEN_FILES:
        per_reader = MIN_SHARDS * math.ceil(per_reader / MIN_SHARDS)  # see `at_a_time`
    return min(num_readers * per_reader, num_examples)


def sizes(num_examples: int, num: int) -> list[int]:
    """Returns the number of examples of each of `num` shards.

    They differ by at most one; the first shards are the larger ones.
    """
    quotient, remainder = divmod(num_examples, num)
    return [quotient + (index < remainder) for index in range(num)]


@dataclass(frozen=True)
class Share:
    """The part of a split that one of several processes reads.

    Attributes:
      shards: Number of shards that the process reads.
      sharing: Number of processes that share each of these shards, each reading a part
        of its records; 1 if the process reads its shards alone.
    """

    shards: int
    sharing: int


def share(num: int, num_readers: int) -> Share:
    """Returns the share of each of `num_readers` processes in `num` shards."""
    groups = math.gcd(num, num_readers)
    return Share(num // groups, num_readers // groups)


def at_a_time(num: int, most: int) -> int:
    """Returns how many of `num` files to read at the same time.

    It is at most `most`, and divides `num`, so that every turn reads the same number.
    """
    return max(count for count in range(1, min(num, max(most, 1)) + 1) if num % count == 0)


def block_size(num_examples: int, num: int, shuffle_buffer_size: int) -> int:
    """Returns the number of records of a shard that are shuffled with each other.

    With this size, all shards have the same number of blocks. `num` is the number of
    shards, over all of which `shuffle_buffer_size` counts.
    """
    size = max(1, math.ceil(shuffle_buffer_size / num))
    quotient, remainder = divmod(num_examples, num)
    while remainder and quotient % size == 0:
        size += 1  # otherwise the shards with one more record would have one more block
    return size
