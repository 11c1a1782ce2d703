"""Tests how DTensor's errors are explained; test_meshes.py has real ones."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.loop import mesh_steps

ERRORS = [
    (
        tf.errors.UnknownError,
        "model.py:3:1: error: 'tf.DenseBincount' op does not implement layout propagation",
        "module: DTensor cannot divide the operation DenseBincount,",
    ),
    (
        tf.errors.UnimplementedError,
        "The op/function AssignVariableOp got a regular tensor for input 1 (shape [2]) but was expecting a DTensor.",
        "module: this fails under DTensor: The op/function AssignVariableOp",
    ),
]


@pytest.mark.parametrize(("kind", "text", "message"), ERRORS)
def test_what_dtensor_does_not_support_is_explained(kind, text, message):
    with pytest.raises(ConfigurationError) as raised, mesh_steps.explaining_unsupported_operations():
        raise kind(None, None, text)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_other_errors_stay_as_they_are():
    text = "the image has 3 channels\n\t [[{{node decode}}]] [Op:IteratorGetNext]"
    with pytest.raises(tf.errors.InvalidArgumentError, match="3 channels"), mesh_steps.explaining_unsupported_operations():
        raise tf.errors.InvalidArgumentError(None, None, text)
