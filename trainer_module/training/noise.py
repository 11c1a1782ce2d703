"""Random numbers of training steps, such as those of dropout: a function of seed, step and replica.

Left to themselves, all workers draw the same noise, because they trace the same graph with the same seeds, and a training
that is resumed does not go on with the numbers that it would have had. Here a draw within `of_step` takes its seed from the
step, so that replicas differ, and a step draws the same numbers whenever it is taken.

Draws in a loop or a branch of the model's own, such as one for each image of a batch, stay Keras's: they are traced once,
but must not be the same in each round.
"""

import contextlib
import functools
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_replica = threading.local()  # under a mirrored strategy, each replica is traced in a thread of its own


class _Draws:
    """The draws of one replica's batch."""

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
def of_step(seed: int, step: Any, batch: Any = 0) -> Iterator[None]:
    """Has what Keras draws within the block depend on these numbers and the replica alone.

    Args:
      seed: The seed of the training.
      step: Number of the training step, a scalar integer variable or tensor.
      batch: Number of the replica's batch within the step, a scalar integer.
    """
    _install()
    _replica.draws = _Draws(seed, step, batch)
    try:
        yield
    finally:
        del _replica.draws


@functools.cache
def _install() -> None:
    """Has Keras ask here for seeds. There is no public way to do so (Keras 2.16 and 3.12)."""
    if tf.keras.Model.__module__.startswith("keras."):
        generator = tf.keras.random.SeedGenerator
        generator.next = _asking_here(generator.next)
        return
    generator = importlib.import_module("tf_keras.src.backend").RandomGenerator
    generator.make_seed_for_stateless_op = _asking_here(generator.make_seed_for_stateless_op)
    generator._rng_type = property(_kind, _set_kind)


def _kind(generator: Any) -> str:
    """The kind of a Keras 2 generator, which decides what it draws with: within a step, operations that take a seed."""
    if _draws():
        return str(generator.RNG_STATELESS)
    try:
        return str(vars(generator)["_rng_type"])
    except KeyError as error:
        raise AttributeError("_rng_type") from error


def _set_kind(generator: Any, kind: str) -> None:
    vars(generator)["_rng_type"] = kind


def _asking_here(original: Any) -> Any:
    @functools.wraps(original)
    def seed(generator: Any, *arguments: Any, **options: Any) -> Any:
        draws = _draws()
        return draws.next_seed() if draws else original(generator, *arguments, **options)

    return seed


def _draws() -> _Draws | None:
    draws: _Draws | None = getattr(_replica, "draws", None)
    return draws if draws and draws.graph is _graph() else None


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
