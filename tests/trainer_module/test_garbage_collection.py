"""Tests what the garbage collector looks at."""

import gc
import weakref

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


def test_later_garbage_is_collected():
    with paused():
        pass
    node = Node()
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is None


def test_a_block_that_fails_ends_the_pause():
    with pytest.raises(ImportError), paused():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()
