"""How a split is divided into shards, and what of it each process reads. Plain arithmetic, without TensorFlow.

A split's examples have one order, whatever reads them: example `g` of a split in `n` shards is the `g // n`-th of shard
`g % n`. Of `r` processes, number `i` reads the examples whose `g % r` is `i`: those of shards of its own where `r` divides
`n`; else it shares each of its shards with `sharing` processes, record by record.
"""

import math
from dataclasses import dataclass

from tfx_distribute.trainer_module.job.training_job import InputOptions, Split

SHARD_BYTES = 128 << 20  # that a shard has at most, where nobody says how many there are
MAX_OPEN_FILES = InputOptions.cycle_length
MIN_SHARDS = 16  # so that 2, 4, 8 or 16 processes have files of their own, and several files are read at a time


def num_shards(num_examples: int, num_bytes: int, num_readers: int) -> tuple[int, str]:
    """How many shards a split gets where nobody says so.

    Args:
      num_examples: Examples of the split.
      num_bytes: Bytes of the split.
      num_readers: Processes that will read it.

    Returns:
      The number of shards, and the reason.
    """
    at_least = max(MIN_SHARDS, math.ceil(num_bytes / SHARD_BYTES))
    each = math.ceil(at_least / num_readers)
    if each > MAX_OPEN_FILES:
        each = MIN_SHARDS * math.ceil(each / MIN_SHARDS)  # see `at_a_time`
    wanted = num_readers * each
    if wanted > num_examples:
        return num_examples, f"one for each of {num_examples} examples"
    if at_least > MIN_SHARDS:
        reason = f"{wanted} shards: {_size(num_bytes)} in shards of at most {SHARD_BYTES >> 20} MiB"
    else:
        reason = f"{wanted} shards: {_size(num_bytes)} would fit in fewer, but {MIN_SHARDS} serve any few processes"
    return wanted, f"{reason}; a multiple of {num_readers} reading process{'es' if num_readers > 1 else ''}"


def _size(num_bytes: float) -> str:
    return f"{num_bytes / (1 << 20):.1f} MiB"


def sizes(num_examples: int, num: int) -> list[int]:
    """Examples of each shard: the first ones have one more where they do not divide."""
    each, more = divmod(num_examples, num)
    return [each + (index < more) for index in range(num)]


@dataclass(frozen=True)
class Share:
    """What one of several processes reads.

    Attributes:
      shards: Shards that it reads.
      sharing: Processes that read each of them, every one a part of its records; 1 where files are its own.
    """

    shards: int
    sharing: int


def share(num: int, num_readers: int) -> Share:
    """What each of `num_readers` processes reads of `num` shards."""
    groups = math.gcd(num, num_readers)
    return Share(num // groups, num_readers // groups)


def describe(split: Split, num_readers: int) -> str:
    """What each of `num_readers` processes reads of a split, in words."""
    num = len(split.files)
    if not split.sharded:
        return f"{num} files that are no shards; each process reads all and takes 1 in {num_readers} of their examples"
    own = share(num, num_readers)
    if own.sharing == 1:
        return f"{num} shards; each process reads {own.shards} of its own"
    return f"{num} shards; each process reads {own.shards} and takes 1 in {own.sharing} of their examples"


def at_a_time(num: int, most: int) -> int:
    """How many of `num` files to read at a time: at most `most`, and so that every turn has the same number."""
    return max(count for count in range(1, min(num, max(most, 1)) + 1) if num % count == 0)


def block_size(num_examples: int, num: int, shuffle_buffer_size: int) -> int:
    """Records of a shard that are shuffled among each other, so that all shards have the same number of such blocks."""
    size = max(1, math.ceil(shuffle_buffer_size / num))
    each, more = divmod(num_examples, num)
    while more and each % size == 0:
        size += 1  # a shard with one more record would have one more block
    return size
