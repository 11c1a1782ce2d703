"""Tests that a module in one of several processes cannot make a strategy."""

import pytest
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.strategies import foreign


class Own(tf.distribute.OneDeviceStrategy):
    """A strategy that a module defines."""


@pytest.mark.parametrize("make", [*foreign._CLASSES, lambda: Own("CPU:0")])
def test_strategies_are_refused_within_the_block(make):
    with (
        foreign.refusing_own_strategies("m.run_fn"),
        pytest.raises(ConfigurationError, match=r"^module: m.run_fn made a \w+ of its own \(.*test_foreign.py, line \d+\)"),
    ):
        make()
    assert Own("CPU:0").num_replicas_in_sync == 1
