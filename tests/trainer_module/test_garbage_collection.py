"""Tests what the garbage collector looks at."""

import gc

import pytest

from tfx_distribute.trainer_module.garbage_collection import paused


@pytest.fixture(autouse=True)
def collector():
    """Leaves the collector on; objects of all tests are frozen already."""
    yield
    gc.enable()


class Node:
    def __init__(self):
        self.itself = self


def test_objects_of_the_block_are_not_looked_at_later():
    with paused():
        assert not gc.isenabled()
        kept = [Node() for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)
    assert not any(type(each) is Node for each in gc.get_objects())


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_afterwards_as_before(was_on):
    if not was_on:
        gc.disable()
    with pytest.raises(ImportError), paused():
        raise ImportError
    assert gc.isenabled() == was_on
