"""Files of serialized tf.Examples -> the datasets of this process.

A training step takes the same examples, whatever number of processes shares it. No process runs out before the others.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data import read_errors
from tfx_distribute.trainer_module.data import record_stream as reading_lib
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split, TrainingData, TrainingOptions


@dataclass(frozen=True)
class InputPipeline:
    """The datasets of a job.

    Attributes:
      data: What is read.
      features: The features of its examples.
      schedule: Batch, seed, and how much is evaluated on.
      reading: How it is read.
      plan: How many steps see all examples once.
      readers: Training processes that read, each for its own replicas.
      batches: Batches that each of them takes in one step; 0 where they do not train in step.
    """

    data: TrainingData
    features: Features
    schedule: TrainingOptions
    reading: InputOptions
    plan: Plan
    readers: int
    batches: int

    @property
    def has_evaluation(self) -> bool:
        """Whether there is something to evaluate on."""
        return self.data.eval is not None and self.data.eval.num_examples > 0

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Has TensorFlow's errors within the block name the file and the record, where these are what is wrong.

        Raises:
          DataError: They are.
        """
        try:
            yield
        except tf.errors.OpError as error:
            splits = [split for split in (self.data.train, self.data.eval) if split]
            read_errors.explain(error, [file for split in splits for file in split.files], self.features.examples)
            raise

    def train(self, context: tf.distribute.InputContext, first_step: int = 0) -> tf.data.Dataset:
        """This process's share of the training examples, shuffled anew each time round, without end.

        Args:
          context: Which of the processes this one is.
          first_step: Training steps whose examples are left out: the next one's come first. They are exactly those that it
            would have had; about those, where processes do not train in step.

        Returns:
          Pairs, for one replica each. First a batch: features (name -> tensor whose first dimension is the batch), label,
          and the weight of each example, a vector, where there is one. Second, how much of its step's examples the batch is,
          a float32 scalar: batches of one step may differ by an example, and each example counts the same.
        """
        split, reader, readers = self.data.train, context.input_pipeline_id, context.num_input_pipelines
        batch = self.schedule.per_replica_batch_size
        own = reading_lib.examples_of(split.num_examples, reader, readers)

        def blocks(first_pass: Any, skipped: Any) -> tf.data.Dataset:
            return reading_lib.shuffled(split, reader, readers, self.schedule.seed, self.reading, first_pass, skipped)

        def batches(sizes: tf.Tensor, done: Any) -> tf.data.Dataset:
            """Batches of these sizes, which are those of one time round, after the first `done` batches."""
            in_pass = done % tf.size(sizes, tf.int64)
            skipped = tf.reduce_sum(sizes[:in_pass]) if first_step else 0
            return blocks(done // tf.size(sizes, tf.int64), skipped).rebatch(tf.roll(sizes, -in_pass, 0))

        if not self.batches:
            sizes = reading_lib.step_sizes(own, (own + batch - 1) // batch, 0, 1, 1)
            return self._parsed(batches(sizes, first_step // readers), lambda number, size: 1.0)
        if self.plan.fixed_batches:
            done = first_step * self.batches * batch
            fixed = blocks(done // own, done % own).rebatch(batch, drop_remainder=True)
            return self._parsed(fixed, lambda number, size: 1.0 / (self.batches * readers))
        steps = self.plan.steps_per_pass
        ends = reading_lib.step_ends(split.num_examples, steps)
        sizes = reading_lib.step_sizes(split.num_examples, steps, reader, readers, self.batches)

        def share(number: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
            step = (first_step + number // self.batches) % steps
            return tf.cast(size, tf.float32) / tf.cast(ends[step + 1] - ends[step], tf.float32)

        return self._parsed(batches(sizes, first_step * self.batches), share)

    def eval_steps(self, num_replicas: int) -> int:
        """Returns the steps of one evaluation, of a global batch each: the whole split, or as many as the schedule says.

        Raises:
          ConfigurationError: Some replica would have no example.
        """
        assert self.data.eval is not None
        whole = eval_steps(self.data.eval, num_replicas, self.schedule.per_replica_batch_size)
        return min(self.schedule.eval_steps or whole, whole)

    def evaluation(self, context: tf.distribute.InputContext, num_replicas: int) -> tf.data.Dataset:
        """This process's share of the eval split, each example once, in `eval_steps` steps; and again without end.

        As in training, steps differ by one example at most, and so do the batches of a step: none is empty, which a model
        need not be able to compute.
        """
        split, reader, readers = self.data.eval, context.input_pipeline_id, context.num_input_pipelines
        assert split is not None
        batch, batches, steps = (
            self.schedule.per_replica_batch_size,
            num_replicas // self.readers,
            self.eval_steps(num_replicas),
        )
        records = reading_lib.in_order(split, reader, readers, self.reading).batch(batch)
        if steps < eval_steps(split, num_replicas, batch):
            return self._parsed(records.take(steps * batches).repeat())
        sizes = reading_lib.step_sizes(split.num_examples, steps, reader, readers, batches)
        return self._parsed(records.rebatch(sizes).repeat())

    def of_global_batch(self, num_replicas: int) -> "InputPipeline":
        """The same, but for one reader that divides batches among replicas by itself."""
        batch = self.schedule.per_replica_batch_size * num_replicas
        schedule = replace(self.schedule, per_replica_batch_size=batch)
        return replace(self, schedule=schedule, batches=self.schedule.gradient_accumulation_steps)

    def evaluation_part(self, part: Any, parts: int, global_batch_size: int) -> tf.data.Dataset:
        """One of several parts of what is evaluated on, each of its examples once; the last batch may be smaller."""
        split = self.data.eval
        assert split is not None
        records = reading_lib.in_order(split, part, parts, self.reading)
        if self.schedule.eval_steps:
            some = min(split.num_examples, self.schedule.eval_steps * global_batch_size)
            records = records.take(reading_lib.examples_of(some, part, parts))
        return self._parsed(records.batch(self.schedule.per_replica_batch_size))

    def zeros(self) -> Any:
        """A batch without content: features and label, as a training step gets them."""
        context = tf.distribute.InputContext()
        batch = self.schedule.per_replica_batch_size

        def empty(spec: tf.TypeSpec) -> Any:
            if isinstance(spec, tf.RaggedTensorSpec):
                return tf.RaggedTensor.from_row_lengths(tf.zeros([0], spec.dtype), tf.zeros([batch], spec.row_splits_dtype))
            dense = tf.zeros([batch, *(size or 0 for size in spec.shape[1:])], spec.dtype)
            return tf.sparse.from_dense(dense) if isinstance(spec, tf.SparseTensorSpec) else dense

        batch_spec, _ = self.train(context).element_spec
        return tf.nest.map_structure(empty, batch_spec)

    def _parsed(
        self, batches: tf.data.Dataset, share: Callable[[tf.Tensor, tf.Tensor], Any] | None = None
    ) -> tf.data.Dataset:
        """Batches of serialized examples, parsed; and where `share` is given, what it says of a batch's number and size."""

        def parse(serialized: tf.Tensor) -> tuple[Any, ...]:
            example = tf.io.parse_example(serialized, self.features.examples)
            label = example.pop(self.features.label)
            if self.features.example_weight is None:
                return example, label
            return example, label, tf.reshape(tf.cast(example.pop(self.features.example_weight), tf.float32), [-1])

        calls = self.reading.num_parallel_calls or tf.data.AUTOTUNE
        if share is None:
            parsed = batches.map(parse, num_parallel_calls=calls)
        else:
            parsed = batches.enumerate().map(
                lambda number, serialized: (parse(serialized), share(number, tf.size(serialized))), num_parallel_calls=calls
            )
            # Said, since it cannot be seen: a strategy would ask all processes before each batch whether there is one.
            parsed = parsed.apply(tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY))
        return parsed.prefetch(self.reading.prefetch_buffer_size or tf.data.AUTOTUNE)


def eval_steps(split: Split, num_replicas: int, per_replica_batch_size: int) -> int:
    """Returns the steps in which every example of the split is seen once, and every replica has some in each.

    Raises:
      ConfigurationError: There are fewer examples than replicas.
    """
    if split.num_examples < num_replicas:
        raise ConfigurationError(
            f"eval split: {num_replicas} replicas evaluate, but it has {split.num_examples} examples; hold out at least "
            f"{num_replicas}"
        )
    # With batches of one example, the last step may have fewer examples than replicas: the others take one more.
    return min(math.ceil(split.num_examples / (num_replicas * per_replica_batch_size)), split.num_examples // num_replicas)
