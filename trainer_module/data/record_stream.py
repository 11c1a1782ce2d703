"""Streams serialized examples from TFRecord files to one of several reading processes.

Records are read, shuffled and passed on in blocks, because any work per record would
cost more than reading it. AutoGraph is off: no function here needs it, and converting
all of them would take half a second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords
from tfx_distribute.trainer_module.job import shard_plan
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split

BUFFER_BYTES = 64 << 20  # read ahead, over all files that are open at the same time
SHUFFLE_BYTES = 64 << 20  # size of the shuffle buffer if `shuffle_buffer_size` is unset
# Shards are shuffled already, and a buffer that fits the processor's cache is faster.
MAX_SHUFFLED = 10_000
CACHE_BYTES = 512 << 20  # most that a process keeps in memory with `cache` at "auto"
GZIP_RATIO = 4  # approximate ratio of uncompressed to compressed size
SHARING_BLOCK = 512  # records that processes sharing a file divide at a time, at most
COUNTING_BLOCK = 32  # records that are counted at a time: they may be large

# An int or, where workers of parameter servers share one function, an int64 scalar.
Number = Any


@tf.autograph.experimental.do_not_convert
def read_shuffled(
    split: Split,
    reader: Number,
    readers: int,
    seed: int,
    options: InputOptions,
    first_pass: Number = 0,
    skipped: Number = 0,
) -> tf.data.Dataset:
    """Returns a process's share of a split in blocks, repeated endlessly.

    Every pass has another order. It follows from the seed, and not from the number of
    processes unless one has more shards than `options.cycle_length`. `first_pass`
    passes are skipped, and `skipped` examples of the first one that is read. Blocks are
    vectors of serialized examples, of varying length.
    """
    files = _shards(split)
    if not split.sharded:  # they may be sorted, such as by day
        files = [[files[0][number] for number in np.random.default_rng(seed).permutation(len(files[0]))]]
    share = shard_plan.share(len(files), readers)
    groups = readers // share.sharing
    lanes = shard_plan.at_a_time(share.shards, options.cycle_length)
    # The buffer is for the shards that are read at the same time.
    buffer = shuffle_buffer_size(split, options) * share.shards // lanes
    block = shard_plan.block_size(split.num_examples, len(files), buffer)
    shard_numbers = tf.range(reader % groups, len(files), groups, dtype=tf.int64)
    # Lane 0 reads the process's shards 0, `lanes`, 2 * `lanes`, ...; lane 1 the next
    # ones. All lanes end a row of shards before they begin the next.
    rows = tf.reshape(shard_numbers, [share.shards // lanes, lanes])
    rows_skipped: Number = 0
    if not is_zero(skipped) and share.sharing == 1:
        ends = tf.cumsum(tf.reduce_sum(examples_of(split.num_examples, rows, len(files)), 1))
        rows_skipped = tf.reduce_sum(tf.cast(ends <= skipped, tf.int64))
        skipped -= tf.reduce_max(tf.where(ends <= skipped, ends, 0))
    blocks_per_shard = -(-split.num_examples // (len(files) * block))
    cached = options.cache == "memory"
    if options.cache == "auto":
        cached = _uncompressed_bytes(split) * share.sharing / readers <= CACHE_BYTES
    open_file = _make_opener(split.files, lanes)

    def blocks_of(names: tf.Tensor) -> tf.data.Dataset:
        # No block has records of two shards, so that all lanes have the same number of
        # blocks. Unsharded files are one shard, and each may be small.
        return tf.data.Dataset.from_tensor_slices(names).flat_map(open_file).batch(block)

    def lane(shards: tf.Tensor) -> tf.data.Dataset:
        names = tf.data.Dataset.from_tensor_slices(tf.gather(tf.constant(files), shards))
        blocks = names.flat_map(blocks_of).enumerate()
        if cached:
            blocks = blocks.cache()
        all_passes = blocks.repeat()
        if not is_zero(rows_skipped):
            rest = names.skip(rows_skipped).flat_map(blocks_of).enumerate(rows_skipped * blocks_per_shard)
            all_passes = rest.concatenate(all_passes)

        def shuffle_block(pass_number: tf.Tensor, block: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            number, records = block
            pass_number += tf.cast(number == 0, tf.int64)
            return pass_number, _shuffle(records, [seed, shards[0] * 2**44 + pass_number * 2**24 + number])

        begun = tf.cast(tf.greater(rows_skipped, 0), tf.int64)  # a pass that does not begin with block 0
        return all_passes.scan(tf.cast(first_pass, tf.int64) - 1 + begun, shuffle_block)

    blocks = tf.data.Dataset.from_tensor_slices(tf.transpose(rows)).interleave(
        lane,
        cycle_length=lanes,
        block_length=1,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if lanes > 1:
        blocks = blocks.ragged_batch(lanes).map(_take_turns, num_parallel_calls=tf.data.AUTOTUNE)
    if share.sharing > 1:
        num_examples = examples_of(split.num_examples, reader % groups, groups)
        sharing_block = max(1, min(SHARING_BLOCK, SHUFFLE_BYTES // _example_bytes(split)))
        blocks = _take_share(blocks, reader // groups, share.sharing, num_examples, sharing_block)
    return _skip(blocks, skipped)


@tf.autograph.experimental.do_not_convert
def read_in_order(split: Split, reader: Number, readers: int, options: InputOptions) -> tf.data.Dataset:
    """Returns a process's share of a split, once, record by record.

    The share is every `readers`-th example, starting with number `reader`, from 0. The
    examples are in order unless the process has more shards than it reads at a time.
    """
    files = _shards(split)
    share = shard_plan.share(len(files), readers)
    groups = readers // share.sharing
    lanes = shard_plan.at_a_time(share.shards, options.cycle_length)
    open_file = _make_opener(split.files, lanes)
    shard_numbers = tf.range(reader % groups, len(files), groups, dtype=tf.int64)
    return (
        tf.data.Dataset.from_tensor_slices(tf.gather(tf.constant(files), shard_numbers))
        .interleave(
            lambda names: tf.data.Dataset.from_tensor_slices(names).flat_map(open_file),
            cycle_length=lanes,
            block_length=1,
        )
        .shard(share.sharing, reader // groups)
    )


def count(files: Sequence[str]) -> int:
    """Counts the records in all files by reading them once."""
    records = tf.data.TFRecordDataset(list(files), compression_type=_compression(files), buffer_size=1 << 20)
    options = tf.data.Options()
    options.autotune.enabled = False  # there is nothing to tune, and its thread takes seconds to end
    sizes = records.batch(COUNTING_BLOCK).map(tf.size).with_options(options)
    return int(sizes.reduce(np.int64(0), lambda total, size: total + tf.cast(size, tf.int64)))


def shuffle_buffer_size(split: Split, options: InputOptions) -> int:
    """Returns how many examples are shuffled with each other, over all processes."""
    if options.shuffle_buffer_size:
        return min(options.shuffle_buffer_size, max(1, split.num_examples))
    return max(1, min(split.num_examples, MAX_SHUFFLED, SHUFFLE_BYTES // _example_bytes(split)))


def examples_of(num_examples: Number, reader: Number, readers: int) -> Number:
    """Returns how many of the first `num_examples` examples a process reads."""
    return (num_examples - reader + readers - 1) // readers


def _shards(split: Split) -> list[list[str]]:
    """Returns the files of each shard; unsharded files count as one shard together."""
    return [[file] for file in split.files] if split.sharded else [list(split.files)]


def _make_opener(files: Sequence[str], at_a_time: int):  # type: ignore[no-untyped-def]
    """Returns a function that opens one of `files`; `at_a_time` are open at once."""
    compression = _compression(files)
    buffer = max(64 << 10, min(1 << 20, BUFFER_BYTES // at_a_time))
    return lambda file: tf.data.TFRecordDataset(file, compression_type=compression, buffer_size=buffer)


def _compression(files: Sequence[str]) -> str:
    return "GZIP" if tfrecords.is_gzipped(files[0]) else ""


def _example_bytes(split: Split) -> int:
    return max(1, _uncompressed_bytes(split) // max(1, split.num_examples))


def _uncompressed_bytes(split: Split) -> int:
    return split.num_bytes * (GZIP_RATIO if split.files and tfrecords.is_gzipped(split.files[0]) else 1)


def _shuffle(records: tf.Tensor, seed: list[Number]) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(records, tf.stack([tf.cast(part, tf.int64) for part in seed]))


def _take_turns(blocks: tf.RaggedTensor) -> tf.Tensor:
    """Returns the first record of each block, then the second of each, and so on."""
    lengths = blocks.row_lengths()
    positions = tf.range(tf.reduce_max(lengths))[:, tf.newaxis]
    exists = positions < lengths[tf.newaxis, :]
    return tf.gather(blocks.values, tf.boolean_mask(blocks.row_starts()[tf.newaxis, :] + positions, exists))


def _take_share(blocks: tf.data.Dataset, first: Number, sharing: int, num_examples: Number, block: int) -> tf.data.Dataset:
    """Keeps, in each pass, every `sharing`-th record, starting with record `first`."""

    def keep(block_number: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
        position = (block_number * block + tf.range(block, dtype=tf.int64)) % num_examples
        return tf.boolean_mask(records, position % sharing == first)

    return blocks.rebatch(block, drop_remainder=True).enumerate().map(keep)


def _skip(blocks: tf.data.Dataset, skipped: Number) -> tf.data.Dataset:
    """Drops the first `skipped` examples, which are read but not passed on."""
    if is_zero(skipped):
        return blocks

    def drop(remaining: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        dropped = tf.minimum(remaining, tf.size(records, tf.int64))
        return remaining - dropped, records[dropped:]

    return blocks.scan(tf.cast(skipped, tf.int64), drop).filter(lambda records: tf.size(records) > 0)


def is_zero(number: Number) -> bool:
    """Returns True for the number 0 that is known when a dataset is made."""
    return isinstance(number, int) and not number


def step_ends(num_examples: Number, steps: Number) -> tf.Tensor:
    """Returns how many examples are seen before each step and at the end, as int64.

    Steps differ by at most one example.
    """
    return tf.range(steps + 1, dtype=tf.int64) * num_examples // steps


def step_sizes(num_examples: Number, steps: Number, reader: Number, readers: int, batches: int) -> tf.Tensor:
    """Returns the size of each of a process's batches in one pass over the examples.

    Steps differ by at most one example, and so do the `batches` of a step.
    `num_examples` counts those of all processes.
    """
    seen = examples_of(step_ends(num_examples, steps), reader, readers)
    examples_per_step = seen[1:] - seen[:-1]
    ends = examples_per_step[:, tf.newaxis] * tf.range(batches + 1, dtype=tf.int64)[tf.newaxis, :] // batches
    return tf.reshape(ends[:, 1:] - ends[:, :-1], [-1])
