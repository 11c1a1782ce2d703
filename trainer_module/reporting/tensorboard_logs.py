"""Writes logs for TensorBoard, without ending a training when the disk is full."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from typing_extensions import override

from tfx_distribute.trainer_module.errors import describe_shortage

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def skipping_if_full() -> Iterator[None]:
    """Within the block, an error about a full disk or open files is only logged."""
    try:
        yield
    except Exception as error:
        shortage = describe_shortage(error)
        if shortage is None:
            raise
        _log.warning("logs for TensorBoard are incomplete: %s", shortage)


class TensorBoardLogs(tf.keras.callbacks.TensorBoard):
    """Keras's callback, which leaves a gap in its curves when the disk is full.

    Args:
      folder: The log folder.
    """

    def __init__(self, folder: str):
        super().__init__(folder, write_graph=False, profile_batch=0)

    @override
    def on_train_begin(self, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_train_begin(logs)

    @override
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_epoch_begin(epoch, logs)

    @override
    def on_test_begin(self, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_test_begin(logs)

    @override
    def on_test_end(self, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_test_end(logs)

    @override
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_epoch_end(epoch, logs)

    @override
    def on_train_end(self, logs: Any = None) -> None:
        with skipping_if_full():
            super().on_train_end(logs)
