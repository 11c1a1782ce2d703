"""Files of serialized tf.Examples -> the datasets of this process.

Every process reads all records in the same shuffled order and keeps each n-th of them, so that a training step takes the
same records whatever number of processes shares it, no process runs out before the others, and one file serves any
number of them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.features import Features
from tfx_distribute.trainer_module.job import Data, Schedule, Split


@dataclass(frozen=True)
class Feed:
    """The datasets of a job.

    Attributes:
      data: What is read.
      features: The features of its examples.
      schedule: Batch, seed, and how much is evaluated on.
      readers: Training processes that read, each for its own replicas.
    """

    data: Data
    features: Features
    schedule: Schedule
    readers: int

    @property
    def has_evaluation(self) -> bool:
        """Whether there is something to evaluate on."""
        return self.data.eval is not None and self.data.eval.num_examples > 0

    def train(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """This process's share of the training examples; see `train_dataset`."""
        return train_dataset(self.data, self.features, context, self.schedule.per_replica_batch_size, self.schedule.seed)

    def eval_steps(self, num_replicas: int) -> int:
        """Steps of one evaluation, of a global batch each: the whole split, or as many as the schedule says."""
        assert self.data.eval is not None
        batch = self.schedule.per_replica_batch_size
        whole = eval_steps(self.data.eval, self.readers, num_replicas // self.readers, batch)
        return min(self.schedule.eval_steps or whole, whole)

    def evaluation(self, context: tf.distribute.InputContext, num_replicas: int) -> tf.data.Dataset:
        """This process's share of the eval split, again and again; see `eval_dataset`."""
        assert self.data.eval is not None
        return eval_dataset(
            self.data.eval,
            self.features,
            context,
            self.schedule.per_replica_batch_size,
            num_replicas // self.readers,
            self.eval_steps(num_replicas),
        )

    def of_global_batch(self, num_replicas: int) -> "Feed":
        """The same, but for one reader that divides batches among replicas by itself."""
        batch = self.schedule.per_replica_batch_size * num_replicas
        return replace(self, schedule=replace(self.schedule, per_replica_batch_size=batch))

    def evaluation_part(self, part: Any, parts: int, global_batch_size: int) -> tf.data.Dataset:
        """One of several parts of what is evaluated on, each of its examples once; the last batch may be smaller."""
        assert self.data.eval is not None
        records = read_records(self.data.eval.file_patterns)
        if self.schedule.eval_steps:
            records = records.take(self.schedule.eval_steps * global_batch_size)
        return records.shard(parts, part).batch(self.schedule.per_replica_batch_size).map(_parse(self.features))

    def zeros(self) -> Any:
        """A batch without content: features and label, as a training step gets them."""
        context = tf.distribute.InputContext()
        batch = self.schedule.per_replica_batch_size

        def empty(spec: tf.TypeSpec) -> Any:
            if isinstance(spec, tf.RaggedTensorSpec):
                return tf.RaggedTensor.from_row_lengths(tf.zeros([0], spec.dtype), tf.zeros([batch], spec.row_splits_dtype))
            dense = tf.zeros([batch, *(size or 0 for size in spec.shape[1:])], spec.dtype)
            return tf.sparse.from_dense(dense) if isinstance(spec, tf.SparseTensorSpec) else dense

        return tf.nest.map_structure(empty, self.train(context).element_spec)


def expand(file_patterns: Iterable[str]) -> list[str]:
    """The files that the patterns name, sorted.

    Raises:
      ConfigurationError: There are none.
    """
    patterns = list(file_patterns)
    files = sorted(file for pattern in patterns for file in tf.io.gfile.glob(pattern))
    if not files:
        raise ConfigurationError(f"examples: no file is named {' or '.join(patterns)}")
    return files


def read_records(file_patterns: Iterable[str]) -> tf.data.Dataset:
    """The serialized tf.Examples of all files, one after the other: scalar strings."""
    files = expand(file_patterns)
    compressions = {"GZIP" if file.endswith(".gz") else "" for file in files}
    if len(compressions) > 1:
        raise ConfigurationError(f"examples: some files are gzipped and some are not: {', '.join(files)}")
    return tf.data.TFRecordDataset(files, compression_type=compressions.pop(), buffer_size=1 << 20)


def count(file_patterns: Iterable[str]) -> int:
    """Number of records in all files, by reading them once."""
    batches = read_records(file_patterns).batch(4096).map(tf.size)
    return int(batches.reduce(0, lambda total, size: total + size).numpy())


def train_dataset(
    data: Data, features: Features, context: tf.distribute.InputContext, per_replica_batch_size: int, seed: int
) -> tf.data.Dataset:
    """An endless stream of this process's share of the training examples, shuffled anew each time round.

    Returns:
      Features (name -> tensor whose first dimension is the batch) and label, for one replica each; and the weight of each
      example, a vector, where there is one.
    """
    records = read_records(data.train.file_patterns)
    buffer = min(data.shuffle_buffer, data.train.num_examples)
    return (
        records.shuffle(buffer, seed=seed, reshuffle_each_iteration=True)
        .repeat()
        .shard(context.num_input_pipelines, context.input_pipeline_id)
        .batch(per_replica_batch_size, drop_remainder=True)
        .map(_parse(features), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def eval_steps(split: Split, num_pipelines: int, replicas_per_pipeline: int, per_replica_batch_size: int) -> int:
    """Steps in which every example of the split is seen once."""
    share = math.ceil(split.num_examples / num_pipelines)
    return math.ceil(share / (replicas_per_pipeline * per_replica_batch_size))


def eval_dataset(
    split: Split,
    features: Features,
    context: tf.distribute.InputContext,
    per_replica_batch_size: int,
    num_replicas: int,
    num_steps: int,
) -> tf.data.Dataset:
    """This process's share of a split, each example once, in `num_steps` batches for each replica; and again without end.

    The last step's examples are spread over the replicas. Where they are fewer than those, or other processes have one more,
    batches are empty: they weigh nothing in a metric of Keras's, and let all processes take the same number of steps.
    """
    records = read_records(split.file_patterns).shard(context.num_input_pipelines, context.input_pipeline_id)
    own = math.ceil((split.num_examples - context.input_pipeline_id) / context.num_input_pipelines)
    whole = own - own % (num_replicas * per_replica_batch_size)
    last = max(1, math.ceil((own - whole) / num_replicas))
    nothing = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string)).repeat()
    return (
        records.take(whole)
        .batch(per_replica_batch_size)
        .concatenate(records.skip(whole).batch(last))
        .concatenate(nothing)
        .take(num_steps * num_replicas)
        .repeat()
        .map(_parse(features), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def _parse(features: Features):  # type: ignore[no-untyped-def]  # TensorFlow's own types are not seen here
    def parse(serialized: tf.Tensor) -> tuple[Any, ...]:
        example = tf.io.parse_example(serialized, features.examples)
        label = example.pop(features.label)
        if features.example_weight is None:
            return example, label
        return example, label, tf.reshape(tf.cast(example.pop(features.example_weight), tf.float32), [-1])

    return parse
