"""TFRecord files -> streams of serialized examples, for one of several processes that read.

Records are read, shuffled and passed on in blocks: what is done record by record costs more than reading it.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data.tfrecords import is_gzipped
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import shard_plan as shards_lib
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split

BUFFER_BYTES = 64 << 20  # that are read ahead, over all files that are read at a time
SHUFFLE_BYTES = 64 << 20  # that are held to be shuffled, where nobody says how many examples
MAX_SHUFFLED = 10_000  # shards are shuffled already, and what fits the processor's cache is quicker
CACHE_BYTES = 512 << 20  # that a process keeps in memory, where nobody says whether to
GZIP_RATIO = 4  # by which examples are larger when uncompressed, about
SHARING_BLOCK = 512  # records that processes which share a file divide at a time

Number = Any  # an int or, where workers of parameter servers take the same function, an int64 scalar


def shuffled(
    split: Split, reader: Number, readers: int, seed: int, reading: InputOptions, first_pass: Number = 0, skipped: Number = 0
) -> tf.data.Dataset:
    """A process's share of a split, again and again without end, in blocks, shuffled anew each time round.

    Args:
      split: What is read.
      reader: Number of the process.
      readers: How many processes read.
      seed: Seed of the order. With the same, the order over all processes is the same, however many there are, as long as
        none has more shards than `reading.cycle_length`.
      reading: How it is read.
      first_pass: How many times round are left out at the beginning. The others have the order that they had anyway.
      skipped: How many examples of the first time round that is read are left out.

    Returns:
      Vectors of serialized examples, of varying length.
    """
    files = _shards(split)
    share = shards_lib.share(len(files), readers)
    groups = readers // share.sharing
    lanes = shards_lib.at_a_time(share.shards, reading.cycle_length)
    block = shards_lib.block_size(split.num_examples, len(files), shuffle_buffer_size(split, reading))
    own = tf.range(reader % groups, len(files), groups, dtype=tf.int64)
    # Lane 0 reads the first of its shards, then the one `lanes` further on, ...
    of_lane = tf.transpose(tf.reshape(own, [share.shards // lanes, lanes]))
    cached = _cached(split, reading, readers / share.sharing)
    calls = reading.num_parallel_calls or tf.data.AUTOTUNE
    open_files = _opener(split.files, lanes)

    def blocks_of(names: tf.Tensor) -> tf.data.Dataset:
        # A file at a time: a block never has records of two, so that all lanes have the same number of blocks.
        return tf.data.Dataset.from_tensor_slices(names).flat_map(lambda name: open_files(name).batch(block))

    def lane(shards: tf.Tensor) -> tf.data.Dataset:
        blocks = tf.data.Dataset.from_tensor_slices(tf.gather(tf.constant(files), shards)).flat_map(blocks_of).enumerate()
        if cached:
            blocks = blocks.cache()

        def next_block(of_pass: tf.Tensor, block: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            number, records = block
            of_pass += tf.cast(number == 0, tf.int64)
            return of_pass, _shuffle(records, [seed, shards[0] * 2**44 + of_pass * 2**24 + number])

        return blocks.repeat().scan(tf.cast(first_pass, tf.int64) - 1, next_block)

    blocks = tf.data.Dataset.from_tensor_slices(of_lane).interleave(
        lane,
        cycle_length=lanes,
        block_length=1,
        num_parallel_calls=min(calls, lanes),  # more than there are files, TensorFlow refuses
        deterministic=True,
    )
    if lanes > 1:
        blocks = blocks.ragged_batch(lanes).map(_in_turn, num_parallel_calls=calls)
    if share.sharing > 1:
        blocks = _shared(blocks, reader // groups, share.sharing, examples_of(split.num_examples, reader % groups, groups))
    return _without_first(blocks, skipped)


def in_order(split: Split, reader: Number, readers: int, reading: InputOptions) -> tf.data.Dataset:
    """A process's share of a split, once, record by record.

    It is every `readers`-th example from number `reader` on, in their order unless the process has more shards than it reads
    at a time.
    """
    files = _shards(split)
    share = shards_lib.share(len(files), readers)
    groups = readers // share.sharing
    lanes = shards_lib.at_a_time(share.shards, reading.cycle_length)
    open_files = _opener(split.files, lanes)
    own = tf.range(reader % groups, len(files), groups, dtype=tf.int64)
    return (
        tf.data.Dataset.from_tensor_slices(tf.gather(tf.constant(files), own))
        .interleave(
            lambda names: tf.data.Dataset.from_tensor_slices(names).flat_map(open_files),
            cycle_length=lanes,
            block_length=1,
        )
        .shard(share.sharing, reader // groups)
    )


def count(files: Sequence[str]) -> int:
    """Number of records in all files, by reading them once."""
    batches = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(_opener(files, 1)).batch(4096).map(tf.size)
    return int(batches.reduce(0, lambda total, size: total + size).numpy())


def shuffle_buffer_size(split: Split, reading: InputOptions) -> int:
    """How many examples of a split are shuffled among each other, over all processes."""
    if reading.shuffle_buffer_size:
        return min(reading.shuffle_buffer_size, max(1, split.num_examples))
    each = max(1, _uncompressed_bytes(split) // max(1, split.num_examples))
    return max(1, min(split.num_examples, MAX_SHUFFLED, SHUFFLE_BYTES // each))


def examples_of(num_examples: Number, reader: Number, readers: int) -> Number:
    """How many of the first `num_examples` examples a process reads."""
    return (num_examples - reader + readers - 1) // readers


def _shards(split: Split) -> list[list[str]]:
    """The files of each shard; all files, one after the other, where they are no shards."""
    return [[file] for file in split.files] if split.sharded else [list(split.files)]


def _opener(files: Sequence[str], at_a_time: int):  # type: ignore[no-untyped-def]
    """What opens a file, when so many are read at a time."""
    compressions = {"GZIP" if is_gzipped(file) else "" for file in files}
    if len(compressions) > 1:
        raise ConfigurationError(f"examples: some files are gzipped and some are not: {', '.join(files)}")
    compression = compressions.pop()
    buffer = max(64 << 10, min(1 << 20, BUFFER_BYTES // at_a_time))
    return lambda file: tf.data.TFRecordDataset(file, compression_type=compression, buffer_size=buffer)


def _uncompressed_bytes(split: Split) -> int:
    return split.num_bytes * (GZIP_RATIO if split.files and is_gzipped(split.files[0]) else 1)


def _cached(split: Split, reading: InputOptions, groups: float) -> bool:
    return reading.cache == "memory" or (reading.cache == "auto" and _uncompressed_bytes(split) / groups <= CACHE_BYTES)


def _shuffle(records: tf.Tensor, seed: list[Number]) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(records, tf.stack([tf.cast(part, tf.int64) for part in seed]))


def _in_turn(blocks: tf.RaggedTensor) -> tf.Tensor:
    """The first record of each block, then the second of each, ..."""
    lengths = blocks.row_lengths()
    places = tf.range(tf.reduce_max(lengths))[:, tf.newaxis]
    places_there = places < lengths[tf.newaxis, :]
    return tf.gather(blocks.values, tf.boolean_mask(blocks.row_starts()[tf.newaxis, :] + places, places_there))


def _shared(blocks: tf.data.Dataset, number: Number, of: int, num_examples: Number) -> tf.data.Dataset:
    """Of each time round, every `of`-th record from record `number` on."""

    def own(block_number: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        position = (block_number * SHARING_BLOCK + tf.range(SHARING_BLOCK, dtype=tf.int64)) % num_examples
        return tf.boolean_mask(records, position % of == number)

    return blocks.rebatch(SHARING_BLOCK, drop_remainder=True).enumerate().map(own)


def _without_first(blocks: tf.data.Dataset, skipped: Number) -> tf.data.Dataset:
    """Blocks without their first `skipped` examples, which are read but not passed on."""
    if isinstance(skipped, int) and not skipped:
        return blocks

    def rest(left: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        without = tf.minimum(left, tf.size(records, tf.int64))
        return left - without, records[without:]

    return blocks.scan(tf.cast(skipped, tf.int64), rest).filter(lambda records: tf.size(records) > 0)


def step_ends(num_examples: Number, steps: Number) -> tf.Tensor:
    """How many examples all processes have seen before each of `steps` steps, differing by one at most, and at the end."""
    return tf.range(steps + 1, dtype=tf.int64) * num_examples // steps


def step_sizes(num_examples: Number, steps: Number, reader: Number, readers: int, batches: int) -> tf.Tensor:
    """How many examples each batch of a process has, so that `steps` steps see all examples once.

    Steps differ by one example at most, and so do the batches of a step.

    Args:
      num_examples: Examples over all processes.
      steps: Steps that see them once.
      reader: Number of the process.
      readers: How many processes read.
      batches: Batches that a process takes in one step.

    Returns:
      A vector of steps x batches numbers.
    """
    own = examples_of(step_ends(num_examples, steps), reader, readers)
    of_step = own[1:] - own[:-1]
    parts = of_step[:, tf.newaxis] * tf.range(batches + 1, dtype=tf.int64)[tf.newaxis, :] // batches
    return tf.reshape(parts[:, 1:] - parts[:, :-1], [-1])
