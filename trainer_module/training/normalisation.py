"""Makes Keras compute losses as means over one replica's batch, as on a single device.

Keras divides a mean loss by the number of replicas, because its optimizers sum
gradients. The loop weights each replica by its share of the step's examples instead.
This is also correct if shares differ or gradients are accumulated, and for losses that
Keras does not divide: scalars, and losses that the user's module computes itself.

A sum must not be weighted that way: a loss with `reduction="sum"`, or values that
Keras 3 adds up, which a layer passes to `add_loss` for each example. It is divided by
the share, so that the weighted sum over the replicas is the sum over the step's
examples.
"""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_replaced: list[tuple[Any, str, Any]] = []  # attributes of Keras: owner, name, original value
_replica = threading.local()  # under a mirrored strategy, each replica is traced in its own thread


@contextlib.contextmanager
def replica_share(share: tf.Tensor | float) -> Iterator[None]:
    """Sets the replica's share for losses that are computed within the block.

    Args:
      share: The part of the step's examples that the replica's batch has, from 0 to 1.
    """
    _replica.share = share
    try:
        yield
    finally:
        del _replica.share


def use_replica_means() -> None:
    """Stops Keras from dividing losses by the number of replicas, in this process.

    There is no public way to do so (Keras 2.16 and 3.12).
    """
    _restore()
    losses = _keras_losses()
    _replace(losses, "scale_loss_for_distribution", _unchanged)
    if hasattr(losses, "unscale_loss_for_distribution"):  # Keras 3
        _replace(losses, "unscale_loss_for_distribution", _unchanged)
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
    if _keras_losses().scale_loss_for_distribution is _unchanged:
        return loss
    return loss * tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, loss.dtype)


@tf.autograph.experimental.do_not_convert  # contains no user code
def is_scalar(loss: Any) -> bool:
    """Returns True if a loss is one number, and False for one number per example.

    A loss of unknown shape, such as that of a `tf.py_function`, counts as one number.
    """
    shape = tf.TensorShape(loss.shape)
    return shape.rank is None or shape.num_elements() == 1


@tf.autograph.experimental.do_not_convert  # contains no user code; the import would be converted, too
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
        share = 1.0 / tf.distribute.get_strategy().num_replicas_in_sync
    return loss / tf.cast(share, loss.dtype)


def _get_reduction(loss: Any) -> str:
    reductions = tf.keras.losses.Reduction
    return reductions.SUM_OVER_BATCH_SIZE if loss.reduction == reductions.AUTO else loss.reduction


def _unchanged(loss: tf.Tensor) -> tf.Tensor:
    return loss
