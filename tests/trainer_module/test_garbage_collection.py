"""Tests what the garbage collector looks at."""

import gc

import pytest

from tfx_distribute.trainer_module.garbage_collection import paused


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


def test_the_collector_is_on_after_an_error():
    with pytest.raises(ImportError), paused():
        raise ImportError
    assert gc.isenabled()
