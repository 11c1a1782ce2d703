"""Makes Keras compute losses as means over one replica's batch, as on a single device.

Keras divides a mean loss by the number of replicas, because its optimizers sum
gradients. The loop weights each replica by its share of the step's examples instead.
This is also correct if shares differ or gradients are accumulated, and for losses that
Keras does not divide: scalars, and losses that the user's module computes itself.

A sum must not be weighted that way: a loss with `reduction="sum"`, or values that
Keras 3 adds up, which a layer passes to `add_loss` for each example. It is divided by
the share, so that the weighted sum over the replicas is the sum over the step's
examples.

A `compute_loss` of the user's that divides by the number of replicas is computed as
under `fit`, where the losses of the replicas are summed, and then multiplied by it.
"""

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

_replaced: list[tuple[Any, str, Any]] = []  # attributes of Keras: owner, name, original value
# Modules that read the number of replicas for purposes of their own, but for those of
# functions that divide by it for the user.
_LIBRARIES = {"keras", "tensorflow", "tf_keras"}
_DIVIDERS = {tf.nn.compute_average_loss.__module__, tf.nn.scale_regularization_loss.__module__}
_replica = threading.local()  # under a mirrored strategy, each replica is traced in its own thread


@contextlib.contextmanager
def replica_share(share: tf.Tensor | float) -> Iterator[None]:
    """Sets the part of the step's examples that the replica has, from 0 to 1."""
    _replica.share = share
    try:
        yield
    finally:
        del _replica.share


@contextlib.contextmanager
def noticing_division() -> Iterator[set[str]]:
    """Collects the modules whose losses read the number of replicas within the block.

    Yields a set of their names, which fills while a `replica_loss` is traced. They
    probably divide by the number.
    """
    askers: set[str] = set()

    def notice(asker: str) -> None:
        is_library = asker.partition(".")[0] in _LIBRARIES and asker not in _DIVIDERS
        if getattr(_replica, "computes_loss", False) and not is_library:
            askers.add(asker)

    def noticing(count: Any) -> property:
        def read(owner: Any) -> int:
            notice(sys._getframe(1).f_globals["__name__"])
            return int(count.fget(owner))

        return property(read)

    def average(*arguments: Any, **keywords: Any) -> tf.Tensor:
        notice(average_loss.__module__)  # whose global_batch_size may be given
        return average_loss(*arguments, **keywords)

    average_loss = tf.nn.compute_average_loss
    name = "num_replicas_in_sync"
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(tf.nn, "compute_average_loss", average))
        for kind in (tf.distribute.Strategy, tf.distribute.ReplicaContext):
            owner = next(each for each in kind.__mro__ if name in vars(each))
            stack.enter_context(mock.patch.object(owner, name, noticing(vars(owner)[name])))
        yield askers


def replica_loss(compute_loss: Callable[[], Any], is_divided: bool) -> Any:
    """Returns what a `compute_loss` returns, as the mean over one replica's batch.

    With `is_divided`, it divides by the number of replicas.
    """
    with _computing_loss(is_divided):
        loss = compute_loss()
    return _times(loss, _num_replicas()) if is_divided else loss


@contextlib.contextmanager
def _computing_loss(is_divided: bool) -> Iterator[None]:
    _replica.computes_loss, _replica.divisor = True, _num_replicas() if is_divided else 1
    try:
        yield
    finally:
        del _replica.computes_loss, _replica.divisor


def _times(loss: Any, divisor: int) -> Any:
    return loss * divisor if is_scalar(loss) else loss


def use_replica_means() -> None:
    """Stops Keras from dividing losses by the number of replicas, in this process.

    Only within a `replica_loss` that is divided, it still does so. There is no public
    way to change this (Keras 2.16 and 3.12).
    """
    _restore()
    losses = _keras_losses()
    _replace(losses, "scale_loss_for_distribution", _divide_if_asked)
    if hasattr(losses, "unscale_loss_for_distribution"):  # Keras 3
        _replace(losses, "unscale_loss_for_distribution", lambda loss: loss * _divisor() if _divisor() > 1 else loss)
        _replace(losses, "reduce_values", _divide_sums_by_share(losses.reduce_values))
    else:
        # The original refuses means in the steps of a task.
        _replace(tf.keras.losses.Loss, "_get_reduction", _get_reduction)


def use_keras_means() -> None:
    """Makes Keras divide losses again.

    This is for a model whose own `train_step` applies gradients, which the loop cannot
    weight. On one replica, it may use losses as without a strategy.
    """
    _restore()
    if hasattr(tf.keras.losses.Loss, "_get_reduction") and tf.distribute.get_strategy().num_replicas_in_sync == 1:
        _replace(tf.keras.losses.Loss, "_get_reduction", _get_reduction)


def _restore() -> None:
    while _replaced:
        setattr(*_replaced.pop())


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def replica_mean(loss: tf.Tensor) -> tf.Tensor:
    """Returns the mean over one replica's batch of a loss that Keras has computed.

    Undoes Keras's division by the number of replicas if `use_keras_means` is in effect.
    """
    if _keras_losses().scale_loss_for_distribution is _divide_if_asked:
        return loss
    return loss * tf.cast(_num_replicas(), loss.dtype)


def is_scalar(loss: Any) -> bool:
    """Returns True if a loss is one number, and False for one number per example.

    A loss of unknown shape, such as that of a `tf.py_function`, counts as one number.
    """
    shape = tf.TensorShape(loss.shape)
    return shape.rank is None or shape.num_elements() == 1


def _keras_losses() -> Any:
    keras_3 = tf.keras.Model.__module__.startswith("keras.")
    return importlib.import_module("keras.src.losses.loss" if keras_3 else "tf_keras.src.utils.losses_utils")


def use_sums_of_step(compiled_loss: Any) -> None:
    """Divides the sums among a compiled Keras 2 model's losses by `replica_share`."""
    for index, loss in enumerate(compiled_loss._losses):
        if loss is not None and loss.reduction == tf.keras.losses.Reduction.SUM:
            compiled_loss._losses[index] = _SumOfStep(loss)


def use_sums_of_added_losses(model: Any) -> None:
    """Divides what a Keras 3 model's `add_loss` adds up by `replica_share`."""
    aggregate = model._aggregate_additional_loss

    def aggregate_over_step(loss: Any) -> tf.Tensor:
        return aggregate(loss) if is_scalar(loss) else _divide_by_share(aggregate(loss))

    model._aggregate_additional_loss = aggregate_over_step


class _SumOfStep:
    """Wraps a Keras 2 loss with `reduction="sum"` so that Keras does not see it."""

    reduction = tf.keras.losses.Reduction.NONE if hasattr(tf.keras.losses, "Reduction") else None

    def __init__(self, loss: Any):
        self._loss = loss
        self.name = loss.name

    def __call__(self, truth: Any, prediction: Any, sample_weight: Any = None) -> tf.Tensor:
        return _divide_by_share(self._loss(truth, prediction, sample_weight=sample_weight))


def _divide_sums_by_share(reduce_values: Any) -> Any:
    def reduce(values: Any, sample_weight: Any = None, reduction: str = "sum_over_batch_size") -> Any:
        reduced = reduce_values(values, sample_weight, reduction)
        return _divide_by_share(reduced) if reduction == "sum" else reduced

    return reduce


def _divide_by_share(loss: tf.Tensor) -> tf.Tensor:
    share = getattr(_replica, "share", None)
    if share is None:
        share = 1.0 / _num_replicas()
    return loss / tf.cast(share * _divisor(), loss.dtype)


def _get_reduction(loss: Any) -> str:
    reductions = tf.keras.losses.Reduction
    return reductions.SUM_OVER_BATCH_SIZE if loss.reduction == reductions.AUTO else loss.reduction


def _divide_if_asked(loss: tf.Tensor) -> tf.Tensor:
    return loss / _divisor() if _divisor() > 1 else loss


def _divisor() -> int:
    return getattr(_replica, "divisor", 1)


def _num_replicas() -> int:
    return int(tf.distribute.get_strategy().num_replicas_in_sync)
