"""Makes this process's datasets from files of serialized tf.Examples.

A training step uses the same examples however many processes share it, and no process
runs out of examples before the others.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.data import model_inputs, read_errors, record_stream
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import labels
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split, TrainingData, TrainingOptions


@dataclass(frozen=True)
class InputPipeline:
    """The datasets of a job.

    Attributes:
      options: Batch size, seed and evaluation steps.
      plan: The number of steps in which every example is seen once.
      readers: Number of training processes that read, each for its own replicas.
      batches: Batches that each of these processes takes in one step.
    """

    data: TrainingData
    features: Features
    options: TrainingOptions
    input_options: InputOptions
    plan: Plan
    readers: int
    batches: int

    @property
    def has_evaluation(self) -> bool:
        """True if there are examples to evaluate on."""
        return self.data.eval is not None and self.data.eval.num_examples > 0

    @contextlib.contextmanager
    def explaining_read_errors(self) -> Iterator[None]:
        """Makes TensorFlow's read errors within the block name the record."""
        try:
            yield
        except tf.errors.OpError as error:
            model_inputs.explain(error)
            splits = [split for split in (self.data.train, self.data.eval) if split]
            read_errors.explain(error, [file for split in splits for file in split.files], self.features.examples)
            raise

    # Contains no user code, which converts itself. With parameter servers, TensorFlow
    # would convert it.
    @tf.autograph.experimental.do_not_convert
    def train(self, context: tf.distribute.InputContext, first_step: Any = 0) -> tf.data.Dataset:
        """Returns this process's share of the training examples, repeated endlessly.

        Every pass over the examples has a new order. `first_step` steps, an int or an
        int64 scalar, are skipped: the next step has the examples that it would have
        had.

        Returns:
          A dataset of pairs, each for one replica. The first element is a batch:
          features by name, label if there is one (a dictionary by output if there are
          several), and each example's weight if examples or classes have one. The
          second is the batch's share of its step's examples, a float32 scalar. Batches
          of one step may differ by an example, yet every example counts the same.
        """
        split, reader, readers = self.data.train, context.input_pipeline_id, context.num_input_pipelines
        batch = self.options.per_replica_batch_size
        num_examples = record_stream.examples_of(split.num_examples, reader, readers)

        def blocks(first_pass: Any, skipped: Any) -> tf.data.Dataset:
            return record_stream.read_shuffled(
                split, reader, readers, self.options.seed, self.input_options, first_pass, skipped
            )

        if self.plan.fixed_batches:
            done = first_step * self.batches * batch
            fixed = blocks(done // num_examples, done % num_examples).rebatch(batch, drop_remainder=True)
            return self._parse(
                fixed,
                lambda number, size: (
                    1.0 / (self.batches * readers),
                    (done + number * batch + tf.range(batch, dtype=tf.int64)) // num_examples,
                ),
            )
        steps = self.plan.steps_per_pass
        ends = record_stream.step_ends(split.num_examples, steps)
        sizes = record_stream.step_sizes(split.num_examples, steps, reader, readers, self.batches)
        first_pass, in_pass = first_step // steps, first_step % steps * self.batches
        skipped = 0 if record_stream.is_zero(first_step) else tf.reduce_sum(sizes[:in_pass])

        def describe(number: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            step = first_step + number // self.batches
            examples_in_step = ends[step % steps + 1] - ends[step % steps]
            return tf.cast(size, tf.float32) / tf.cast(examples_in_step, tf.float32), tf.fill([size], step // steps)

        return self._parse(blocks(first_pass, skipped).rebatch(tf.roll(sizes, -in_pass, 0)), describe)

    def eval_steps(self, num_replicas: int) -> int:
        """Returns the number of steps of one evaluation, each of a global batch.

        They cover the whole split, or `options.eval_steps` if that is less.
        """
        assert self.data.eval is not None
        all_steps = eval_steps(self.data.eval, num_replicas, self.options.per_replica_batch_size)
        return min(self.options.eval_steps or all_steps, all_steps)

    @tf.autograph.experimental.do_not_convert
    def evaluation(self, context: tf.distribute.InputContext, num_replicas: int) -> tf.data.Dataset:
        """Returns this process's share of the eval split, repeated endlessly.

        It repeats after the number of steps that `eval_steps` returns, in which no
        example is seen twice. As in training, steps differ by at most one example, and
        so do the batches of a step. No batch is empty: a model may not be able to
        compute one. Its batches are for one replica each, as in `train`, without the
        shares and the weights of classes. `num_replicas` counts those of all processes.
        """
        split, reader, readers = self.data.eval, context.input_pipeline_id, context.num_input_pipelines
        assert split is not None
        batch, batches = self.options.per_replica_batch_size, num_replicas // self.readers
        steps = self.eval_steps(num_replicas)
        records = record_stream.read_in_order(split, reader, readers, self.input_options).batch(batch)
        if steps < eval_steps(split, num_replicas, batch):
            return self._parse(records.take(steps * batches).repeat())
        sizes = record_stream.step_sizes(split.num_examples, steps, reader, readers, batches)
        return self._parse(records.rebatch(sizes).repeat())

    def of_global_batch(self, num_replicas: int) -> "InputPipeline":
        """Returns a copy with global batches, for a reader that splits them itself."""
        batch = self.options.per_replica_batch_size * num_replicas
        options = replace(self.options, per_replica_batch_size=batch)
        return replace(self, options=options, batches=self.options.gradient_accumulation_steps)

    @tf.autograph.experimental.do_not_convert
    def evaluation_part(self, part: Any, parts: int) -> tf.data.Dataset:
        """Returns one of several parts of the evaluation, each example once.

        The last batch may be smaller. `part` counts from 0; it is an int or an int64
        scalar. With `options.eval_steps`, the examples to evaluate on are as many
        batches.
        """
        split = self.data.eval
        assert split is not None
        batch = self.options.per_replica_batch_size
        records = record_stream.read_in_order(split, part, parts, self.input_options)
        if self.options.eval_steps:
            num_examples = min(split.num_examples, self.options.eval_steps * batch)
            records = records.take(record_stream.examples_of(num_examples, part, parts))
        return self._parse(records.batch(batch))

    def zeros(self) -> Any:
        """Returns a batch of zeros: features and label, as in a training step.

        Examples have one value of a feature that has any number of them.
        """
        batch = self.options.per_replica_batch_size
        no_records = tf.data.Dataset.from_tensors(tf.constant([], tf.string))
        batch_spec, _ = self._parse(no_records, lambda number, size: (1.0, tf.fill([size], number))).element_spec

        def make_zeros(spec: tf.TypeSpec) -> Any:
            if isinstance(spec, tf.RaggedTensorSpec):
                values = tf.zeros([0, *spec.shape[spec.ragged_rank + 1 :]], spec.dtype)
                rows = [batch, *[0] * (spec.ragged_rank - 1)]
                lengths = [tf.zeros([count], spec.row_splits_dtype) for count in rows]
                return tf.RaggedTensor.from_nested_row_lengths(values, lengths)
            dense = tf.zeros([batch, *(1 if size is None else size for size in spec.shape[1:])], spec.dtype)
            return tf.sparse.from_dense(dense) if isinstance(spec, tf.SparseTensorSpec) else dense

        return tf.nest.map_structure(make_zeros, batch_spec)

    @tf.autograph.experimental.do_not_convert
    def _parse(
        self, batches: tf.data.Dataset, describe: Callable[[tf.Tensor, tf.Tensor], tuple[Any, tf.Tensor]] | None = None
    ) -> tf.data.Dataset:
        """Parses batches of serialized examples.

        `describe` computes a batch's share of its step, and for each of its examples
        the number of earlier passes, from the batch's number and size. With it the
        dataset is for training: endless, augmented, with (batch, share) pairs and
        weights of classes.
        """
        weights_of_classes = labels.parse_class_weight(self.options.class_weight) if describe else {}

        def parse(serialized: tf.Tensor, passes: tf.Tensor | None = None) -> tuple[Any, ...]:
            augments = passes is not None and self.features.functions.augment
            seeds = _example_seeds(serialized, passes, self.options.seed) if augments else None
            inputs, *targets = self.features.parse(serialized, seeds)
            if not targets:
                return (inputs,)
            label, *weights = targets
            weights = [tf.nest.map_structure(_as_weight, weight) for weight in weights]
            if weights_of_classes:  # then there is one label, and one weight at most
                weights = [*map(_get_only, weights), _weights_by_class(_get_only(label), weights_of_classes)]
            return (inputs, label, functools.reduce(_multiply_by_example, weights)) if weights else (inputs, label)

        def parse_to_train(number: tf.Tensor, serialized: tf.Tensor) -> tuple[tuple[Any, ...], Any]:
            share, passes = describe(number, tf.size(serialized))  # type: ignore[misc]
            return parse(serialized, passes), share

        if describe is None:
            parsed = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        else:
            parsed = batches.enumerate().map(parse_to_train, num_parallel_calls=tf.data.AUTOTUNE)
            # tf.data cannot infer this. Without it, a strategy would ask all processes
            # before each batch if there is one.
            parsed = parsed.apply(tf.data.experimental.assert_cardinality(tf.data.experimental.INFINITE_CARDINALITY))
        return parsed.prefetch(tf.data.AUTOTUNE)


def _example_seeds(serialized: tf.Tensor, passes: tf.Tensor, seed: int) -> tf.Tensor:
    """Returns two seeds for each example of a batch, which differ from pass to pass.

    They depend on nothing else, so that an example is augmented in the same way
    whichever process reads it, and after a restart.
    """
    of_pass = tf.constant(seed << 30, tf.int64) + tf.cast(passes, tf.int64)
    return tf.stack([of_pass, tf.strings.to_hash_bucket_fast(serialized, 2**62)], 1)


def _get_only(value: Any) -> tf.Tensor:
    """Returns a tensor, or that of the only output."""
    return next(iter(value.values())) if isinstance(value, Mapping) else value


def _as_weight(value: tf.Tensor) -> tf.Tensor:
    """Returns weights as a float32 vector, or as they are if examples have several."""
    weight = tf.cast(value, tf.float32)
    return tf.reshape(weight, [-1]) if all(size == 1 for size in weight.shape[1:]) else weight


def _multiply_by_example(weights: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    return weights * tf.reshape(by, [-1] + [1] * (len(weights.shape) - 1))


def _weights_by_class(label: tf.Tensor, weights: Mapping[int, float]) -> tf.Tensor:
    """Returns the weight of each example's class, float32, as Keras's `fit` finds it.

    The label is the number of each example's class, of shape [batch] or [batch, 1]; or
    a value for each class, of shape [batch, classes], of which the largest counts.
    """
    if label.dtype == tf.string or len(label.shape) > 2:
        raise ConfigurationError(
            f"class_weight: the label is {label.dtype.name} of shape {list(label.shape[1:])} for each example, which names "
            "no class; make it the number of the class in preprocessing_fn, or leave class_weight out"
        )
    one_hot = len(label.shape) == 2 and label.shape[1] > 1
    classes = tf.argmax(label, 1) if one_hot else tf.cast(tf.reshape(label, [-1]), tf.int64)
    table = tf.constant([weights.get(number, 1.0) for number in range(max(weights) + 1)], tf.float32)
    known = (classes >= 0) & (classes <= max(weights))
    return tf.where(known, tf.gather(table, tf.where(known, classes, 0)), 1.0)


def eval_steps(split: Split, num_replicas: int, per_replica_batch_size: int) -> int:
    """Returns how many steps see every example once; no replica's batch is empty."""
    if split.num_examples < num_replicas:
        raise ConfigurationError(
            f"eval split: {num_replicas} replicas evaluate, but it has {split.num_examples} examples; hold out at least "
            f"{num_replicas}"
        )
    # With batches of one example, the last step may have fewer examples than replicas:
    # then there is one step fewer, and the others take one more example.
    return min(math.ceil(split.num_examples / (num_replicas * per_replica_batch_size)), split.num_examples // num_replicas)
