"""Tells outages of a storage from other errors."""

import errno

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.liveness import outages

RETRIED = tf.errors.AbortedError(None, None, "All 10 retry attempts failed. The last failure: HTTP 503")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (RETRIED, True),
        (tf.errors.UnavailableError(None, None, "libcurl code 6: Could not resolve host"), True),
        (tf.errors.UnknownError(None, None, "state.index; Input/output error"), True),
        # As raised by what opens a checkpoint.
        (tf.errors.OpError(None, None, "state.index; Stale file handle", tf.errors.UNKNOWN), True),
        (ValueError("Failed to get matching files: All 10 retry attempts failed. The last failure: HTTP 503"), True),
        (RuntimeError("state.index; Connection timed out"), True),
        (tf.errors.UnknownError(None, None, "ValueError: in a py_function"), False),
        (tf.errors.PermissionDeniedError(None, None, "HTTP 403"), False),
        (tf.errors.DataLossError(None, None, "not an sstable"), False),
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (ValueError("a bug"), False),
    ],
)
def test_outages_also_as_causes(error, passes):
    assert outages.is_outage(error) == passes
    with pytest.raises(TrainingError) as described:
        raise TrainingError("the weights cannot be saved") from error
    assert outages.is_outage(described.value) == passes


def test_an_error_that_is_its_own_cause():
    error = ValueError("a bug")
    error.__cause__ = error
    assert not outages.is_outage(error)


def test_files_that_cannot_be_read():
    with pytest.raises(tf.errors.OpError) as missing:
        tf.io.gfile.GFile("/nowhere", "r").read()
    assert outages.is_of_storage(missing.value)
    with pytest.raises(tf.errors.OpError) as missing:
        tf.train.Checkpoint().read("/nowhere/state")
    assert not outages.is_of_storage(missing.value)
    assert outages.is_of_storage(RETRIED)
