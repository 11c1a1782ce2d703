"""Makes Keras's losses means over one replica's batch, as on a single device.

Keras divides a mean loss by the number of replicas, because its optimizers sum gradients. The loop weights each replica
by its share of the step's examples instead, which is also right where shares differ or gradients are accumulated, and for
losses that Keras does not divide: scalars and losses computed by the module itself.

A loss with `reduction="sum"` must not be weighted that way. It is divided by the share, so that the weighted sum over the
replicas is the sum over the step's examples.
"""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_replaced: list[tuple[Any, str, Any]] = []  # parts of Keras: where, name, and what it was
_replica = threading.local()  # under a mirrored strategy, each replica is traced in a thread of its own


@contextlib.contextmanager
def share_of_step(share: tf.Tensor | float) -> Iterator[None]:
    """Sets, for losses computed within the block, the share of the step's examples that the replica's batch has."""
    _replica.share = share
    try:
        yield
    finally:
        del _replica.share


def use_replica_means() -> None:
    """Stops Keras from dividing losses by the number of replicas, in this process.

    There is no public way to do so (Keras 2.16 and 3.12).
    """
    if _replaced:
        return
    losses = _keras_losses()
    _replace(losses, "scale_loss_for_distribution", _unchanged)
    if hasattr(losses, "unscale_loss_for_distribution"):  # Keras 3
        _replace(losses, "unscale_loss_for_distribution", _unchanged)
        _replace(losses, "reduce_values", _reducing_as_one_device(losses.reduce_values))
    else:
        _replace(tf.keras.losses.Loss, "_get_reduction", _reduction)  # which refuses means in steps of a task


def use_keras_means() -> None:
    """Has Keras divide losses again, for a model whose own `train_step` applies gradients: nothing else would."""
    while _replaced:
        setattr(*_replaced.pop())


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def replica_mean(loss: tf.Tensor) -> tf.Tensor:
    """Returns the mean over one replica's batch of a loss that Keras has computed, whether Keras divides losses or not."""
    if _keras_losses().scale_loss_for_distribution is _unchanged:
        return loss
    return loss * tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, loss.dtype)


def _keras_losses() -> Any:
    keras_3 = tf.keras.Model.__module__.startswith("keras.")
    return importlib.import_module("keras.src.losses.loss" if keras_3 else "tf_keras.src.utils.losses_utils")


def use_sums_of_step(compiled_loss: Any) -> None:
    """Has the sums among the losses of a compiled Keras 2 model count as `share_of_step` says."""
    for index, loss in enumerate(compiled_loss._losses):
        if loss is not None and loss.reduction == tf.keras.losses.Reduction.SUM:
            compiled_loss._losses[index] = _SumOfStep(loss)


class _SumOfStep:
    """A Keras 2 loss with `reduction="sum"`, which Keras does not recognise as one."""

    reduction = tf.keras.losses.Reduction.NONE if hasattr(tf.keras.losses, "Reduction") else None

    def __init__(self, loss: Any):
        self._loss = loss
        self.name = loss.name

    def __call__(self, truth: Any, prediction: Any, sample_weight: Any = None) -> tf.Tensor:
        return _divided_by_share(self._loss(truth, prediction, sample_weight=sample_weight))


def _reducing_as_one_device(reduce_values: Any) -> Any:
    def reduce(values: Any, sample_weight: Any = None, reduction: str = "sum_over_batch_size") -> Any:
        reduced = reduce_values(values, sample_weight, reduction)
        return _divided_by_share(reduced) if reduction == "sum" else reduced

    return reduce


def _divided_by_share(loss: tf.Tensor) -> tf.Tensor:
    share = getattr(_replica, "share", None)
    if share is None:
        share = 1.0 / tf.distribute.get_strategy().num_replicas_in_sync
    return loss / tf.cast(share, loss.dtype)


def _reduction(loss: Any) -> str:
    kinds = tf.keras.losses.Reduction
    return kinds.SUM_OVER_BATCH_SIZE if loss.reduction == kinds.AUTO else loss.reduction


def _unchanged(loss: tf.Tensor) -> tf.Tensor:
    return loss
