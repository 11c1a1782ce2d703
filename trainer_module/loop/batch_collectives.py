"""Divides steps into TensorFlow calls that replicas can communicate in.

A loss over the batches of all replicas gathers values whose shape is the batch's, of
which steps have different sizes. In one TensorFlow call, a collective operation keeps
the shape of its first round. So such steps are calls of their own, as under `fit`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.loop import replica_sum


class Calls:
    """Tells how many steps the next call of a TensorFlow function may have.

        calls = Calls()
        while steps:
            count = calls.next_count(steps)
            with calls.tracing():
                function(count)
            steps -= count

    Calls `on_notice` where a step communicates values of the batch's shape.
    """

    def __init__(self, on_notice: Callable[[], None] = lambda: None):
        self._on_notice = on_notice
        self._is_traced = self._takes_one = False

    def next_count(self, steps: int) -> int:
        """Returns how many of `steps` the next call may have; the first has one."""
        return steps if self._is_traced and not self._takes_one else 1

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Notices what a function that is traced within the block communicates."""
        context = tf.distribute.ReplicaContext
        originals = {name: getattr(context, name) for name in ("all_gather", "all_reduce")}
        try:
            for name, original in originals.items():
                setattr(context, name, self._noticing(original))
            yield
        finally:
            for name, original in originals.items():
                setattr(context, name, original)
        self._is_traced = True

    def _noticing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @tf.autograph.experimental.do_not_convert
        def communicate(*arguments: Any, **keywords: Any) -> Any:
            values = [part for part in tf.nest.flatten((arguments, keywords), expand_composites=True) if tf.is_tensor(part)]
            caller = sys._getframe(1).f_globals["__name__"]
            if caller != replica_sum.__name__ and not all(value.shape.is_fully_defined() for value in values):
                self._takes_one = True
                self._on_notice()
            return original(*arguments, **keywords)

        return communicate
