"""Tests that trials are worked on at the same time, and interrupted together."""

import threading
import time

import pytest

from tfx_distribute.components.launchers.sigterm import TerminatedError
from tfx_distribute.components.tuner.workers import Workers


def test_results_come_as_items_end():
    meeting = threading.Barrier(2)

    def work(item: int) -> int:
        meeting.wait(10)  # both have to be in work
        if item == 1:
            raise ValueError("one")
        return 10 * item

    with Workers(2, work) as workers:
        for item in (1, 2):
            workers.start(workers.free_key(), item)
        assert workers.free_key() is None
        ended = {item: (result, str(error or "")) for _, item, result, error in (workers.next(), workers.next())}
        assert not workers.busy
    assert ended == {1: (None, "one"), 2: (20, "")}


def test_one_worker_is_the_calling_thread():
    with Workers(1, lambda _: threading.current_thread()) as workers:
        workers.start("0", None)
        assert workers.next() == ("0", None, threading.current_thread(), None)


def test_interrupt_of_one_worker_is_not_a_result():
    def work(_: None) -> None:
        raise KeyboardInterrupt

    with Workers(1, work) as workers:
        workers.start("0", None)
        with pytest.raises(KeyboardInterrupt):
            workers.next()


def test_what_still_runs_is_interrupted_and_cleans_up():
    started, cleaned = threading.Barrier(3), []

    def work(item: int) -> None:
        try:
            started.wait(10)
            for _ in range(1000):
                time.sleep(0.01)
        except TerminatedError:
            cleaned.append(item)
            raise

    with Workers(2, work) as workers:
        workers.start("0", 0)
        workers.start("1", 1)
        started.wait(10)
    assert sorted(cleaned) == [0, 1]
