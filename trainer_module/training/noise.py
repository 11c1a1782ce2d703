"""Derives the random numbers of a training step from seed, step and replica.

These are the numbers that layers such as dropout draw, and those of `tf.random` and
`tf.keras.backend` in a layer of the user's. By default, all workers draw the same
noise, because they trace the same graph with the same seeds, and a resumed training
continues with other numbers than it would have had. Within `seeded_by_step`, each draw
takes its seed from the step instead: replicas differ, and a step draws the same numbers
whenever it runs.

Draws in a loop or a branch inside the model, for instance one for each image of a
batch, stay as they are: they are traced once, but must differ from round to round.
"""

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_replica = threading.local()  # under a mirrored strategy, each replica is traced in its own thread


class _Draws:
    """Supplies the seeds of all draws for one replica's batch."""

    def __init__(self, seed: int, step: Any, batch: Any):
        self._seed, self._step, self._batch = seed, step, batch
        self._count = 0
        self._number_of_seeds: dict[tuple[int, int], int] = {}
        self.graph = _graph()

    def next_seed(self) -> tf.Tensor:
        self._count += 1
        return self._fold_in(self._count)

    def seed_for(self, seeds: tuple[int, int]) -> tf.Tensor:
        """Returns the seed that replaces those of an operation; (0, 0) are none.

        Operations with the same seeds draw the same numbers, as they do in TensorFlow:
        a model may shuffle two tensors in the same way.
        """
        if seeds == (0, 0):
            return self.next_seed()
        if seeds not in self._number_of_seeds:
            self._count += 1
            self._number_of_seeds[seeds] = self._count
        return self._fold_in(self._number_of_seeds[seeds])

    def _fold_in(self, number: int) -> tf.Tensor:
        return tf.random.experimental.stateless_fold_in(self._seed_of_batch, number)

    @functools.cached_property
    def _seed_of_batch(self) -> tf.Tensor:
        seed = tf.constant([self._seed, 0], tf.int32)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for number in (tf.convert_to_tensor(self._step), replica, self._batch):
            seed = tf.random.experimental.stateless_fold_in(seed, number)
        return seed


@contextlib.contextmanager
def seeded_by_step(seed: int, step: Any, batch: Any = 0) -> Iterator[None]:
    """Makes draws in the block depend only on these numbers and the replica.

        with noise.seeded_by_step(seed, optimizer.iterations):
            prediction = model(features, training=True)

    Args:
      seed: The seed of the training.
      step: Number of the training step, a scalar integer variable or tensor.
      batch: Number of the replica's batch within the step, a scalar integer.
    """
    _patch_keras()
    _patch_tensorflow()
    _replica.draws = _Draws(seed, step, batch)
    try:
        yield
    finally:
        del _replica.draws


@functools.cache
def _patch_keras() -> None:
    """Makes Keras take its seeds from here.

    There is no public way to do so (Keras 2.16 and 3.12).
    """
    if tf.keras.Model.__module__.startswith("keras."):
        generator = tf.keras.random.SeedGenerator
        generator.next = _prefer_step_seed(generator.next)
        return
    generator = importlib.import_module("tf_keras.src.backend").RandomGenerator
    generator.make_seed_for_stateless_op = _prefer_step_seed(generator.make_seed_for_stateless_op)
    generator._rng_type = property(_get_rng_type, _set_rng_type)


def _get_rng_type(generator: Any) -> str:
    """Returns the type of a Keras 2 generator, which selects its operations.

    Within a step, these are operations that take a seed.
    """
    if _current_draws():
        return str(generator.RNG_STATELESS)
    try:
        return str(vars(generator)["_rng_type"])
    except KeyError as error:
        raise AttributeError("_rng_type") from error


def _set_rng_type(generator: Any, rng_type: str) -> None:
    vars(generator)["_rng_type"] = rng_type


def _prefer_step_seed(make_seed: Any) -> Any:
    @functools.wraps(make_seed)
    def make_step_seed(generator: Any, *arguments: Any, **options: Any) -> Any:
        draws = _current_draws()
        return draws.next_seed() if draws else make_seed(generator, *arguments, **options)

    return make_step_seed


@functools.cache
def _patch_tensorflow() -> None:
    """Makes the functions of `tf.random` draw with a seed from here within a step.

    They all call these functions (TensorFlow 2.16 and 2.21), and so do those of Keras's
    backend, `tf.nn.dropout` and `tf.image.random_*`.
    """
    operations = importlib.import_module("tensorflow.python.ops.gen_random_ops")
    for name, with_seed in _WITH_SEED.items():
        setattr(operations, name, _prefer_with_seed(getattr(operations, name), with_seed))


def _shuffle(seed: tf.Tensor, value: Any) -> tf.Tensor:
    # Like `tf.random.shuffle`, without a gradient. XLA cannot compile TensorFlow's
    # `stateless_shuffle`.
    order = tf.argsort(tf.random.stateless_uniform(tf.shape(value)[:1], seed, None, None, tf.int32))
    return tf.gather(tf.stop_gradient(value), order)


def _draw_gamma(seed: tf.Tensor, shape: Any, alpha: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_gamma(tf.concat([shape, tf.shape(alpha)], 0), seed, alpha, dtype=alpha.dtype)


def _draw_poisson(seed: tf.Tensor, shape: Any, rate: Any, dtype: Any) -> tf.Tensor:
    return tf.random.stateless_poisson(tf.concat([shape, tf.shape(rate)], 0), seed, rate, dtype)


# Operation that draws from a state of its own -> a function that draws with a seed: its
# first argument, before those of the operation.
_WITH_SEED: dict[str, Callable[..., tf.Tensor]] = {
    "random_standard_normal": lambda seed, shape, dtype: tf.random.stateless_normal(shape, seed, dtype=dtype),
    "truncated_normal": lambda seed, shape, dtype: tf.random.stateless_truncated_normal(shape, seed, dtype=dtype),
    "random_uniform": lambda seed, shape, dtype: tf.random.stateless_uniform(shape, seed, dtype=dtype),
    "random_uniform_int": lambda seed, shape, low, high: tf.random.stateless_uniform(shape, seed, low, high, low.dtype),
    "random_shuffle": _shuffle,
    "random_gamma": _draw_gamma,
    "random_poisson_v2": _draw_poisson,
    "multinomial": lambda seed, logits, num_samples, output_dtype: tf.random.stateless_categorical(
        logits, num_samples, seed, output_dtype
    ),
}


def _prefer_with_seed(operation: Any, with_seed: Callable[..., tf.Tensor]) -> Any:
    @functools.wraps(operation)
    def draw(*arguments: Any, **options: Any) -> Any:
        draws = _current_draws()
        if not draws:
            return operation(*arguments, **options)
        seeds = options.pop("seed", None) or 0, options.pop("seed2", None) or 0
        options.pop("name", None)
        return with_seed(draws.seed_for(seeds), *arguments, **options)

    return draw


def _current_draws() -> _Draws | None:
    draws: _Draws | None = getattr(_replica, "draws", None)
    return draws if draws and draws.graph is _graph() else None


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
