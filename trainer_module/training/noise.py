"""Derives the random numbers of a training step from seed, step and replica.

These are the numbers that layers such as dropout draw. By default, all workers draw the
same noise, because they trace the same graph with the same seeds, and a resumed
training continues with other numbers than it would have had. Within `seeded_by_step`,
each draw takes its seed from the step instead: replicas differ, and a step draws the
same numbers whenever it runs.

Draws in a loop or a branch inside the model, for instance one for each image of a
batch, stay Keras's own: they are traced once, but must differ from round to round.
"""

import contextlib
import functools
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_replica = threading.local()  # under a mirrored strategy, each replica is traced in its own thread


class _Draws:
    """Supplies the seeds of all draws for one replica's batch."""

    def __init__(self, seed: int, step: Any, batch: Any):
        self._seed, self._step, self._batch = seed, step, batch
        self._count = 0
        self.graph = _graph()

    def next_seed(self) -> tf.Tensor:
        self._count += 1
        return tf.random.experimental.stateless_fold_in(self._seed_of_batch, self._count)

    @functools.cached_property
    def _seed_of_batch(self) -> tf.Tensor:
        seed = tf.constant([self._seed, 0], tf.int32)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        for number in (tf.convert_to_tensor(self._step), replica, self._batch):
            seed = tf.random.experimental.stateless_fold_in(seed, number)
        return seed


@contextlib.contextmanager
def seeded_by_step(seed: int, step: Any, batch: Any = 0) -> Iterator[None]:
    """Makes Keras's draws in the block depend only on these numbers and the replica.

        with noise.seeded_by_step(seed, optimizer.iterations):
            prediction = model(features, training=True)

    Args:
      seed: The seed of the training.
      step: Number of the training step, a scalar integer variable or tensor.
      batch: Number of the replica's batch within the step, a scalar integer.
    """
    _patch_keras()
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


def _current_draws() -> _Draws | None:
    draws: _Draws | None = getattr(_replica, "draws", None)
    return draws if draws and draws.graph is _graph() else None


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
