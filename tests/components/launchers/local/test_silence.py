"""Tests that hanging processes are told apart from suspended ones."""

from dataclasses import replace

import pytest

from tfx_distribute.components.launchers.local.silence import Signs, SilenceMonitor


class Processes:
    """Processes that give a sign of life each second, checked ten times a second."""

    def __init__(self, *names, limit=6.0, common_limit=20.0, busy_limit=0.0):
        self._monitor = SilenceMonitor(limit, common_limit, busy_limit)
        self._signs = dict.fromkeys(names, Signs(0))
        self._now = 0.0

    def run(self, seconds, *running, awake_after=None, cpu=None):
        """Lets some processes run, and use CPU time at the rates in `cpu`.

        Returns the processes that hang at the end, and the seconds until the first did.
        """
        first = None
        for tick in range(int(seconds * 10)):
            self._now += 0.1
            for name in running:
                delay = (awake_after or {}).get(name, 0.0)
                if tick % 10 == 0 and tick / 10 >= delay:
                    self._signs[name] = replace(self._signs[name], last_sign=self._signs[name].last_sign + 1)
            for name, rate in (cpu or {}).items():
                self._signs[name] = replace(self._signs[name], cpu_seconds=self._signs[name].cpu_seconds + 0.1 * rate)
            hung = list(self._monitor.find_hung(self._now, self._signs))
            if hung and first is None:
                first = (tick + 1) / 10
        return hung, first

    def end(self, name):
        del self._signs[name]


def test_one_that_hangs_while_others_live():
    processes = Processes("chief-0", "worker-0", "worker-1")
    processes.run(5, "chief-0", "worker-0", "worker-1")
    hung, after = processes.run(10, "chief-0", "worker-1")
    assert hung == ["worker-0"]
    assert 5 <= after <= 7


def test_suspended_processes_continue():
    """The time while they were all suspended does not count as silence."""
    processes = Processes("chief-0", "worker-0")
    processes.run(5, "chief-0", "worker-0")
    assert processes.run(15) == ([], None)
    assert processes.run(10, "chief-0", "worker-0", awake_after={"worker-0": 2.0}) == ([], None)


def test_one_that_does_not_wake_up_with_the_others():
    processes = Processes("chief-0", "worker-0")
    processes.run(5, "chief-0", "worker-0")
    processes.run(15)
    hung, _ = processes.run(10, "worker-0")
    assert hung == ["chief-0"]


def test_all_that_never_wake_up():
    processes = Processes("chief-0", "worker-0")
    processes.run(5, "chief-0", "worker-0")
    hung, after = processes.run(30)
    assert hung == ["chief-0", "worker-0"]
    assert 20 <= after <= 24


def test_the_only_process():
    processes = Processes("chief-0")
    processes.run(5, "chief-0")
    assert processes.run(19) == ([], None)
    assert processes.run(5)[0] == ["chief-0"]


def test_a_process_that_has_ended_is_not_silent():
    processes = Processes("chief-0", "worker-0")
    processes.run(5, "chief-0", "worker-0")
    processes.end("worker-0")
    assert processes.run(10, "chief-0") == ([], None)


@pytest.mark.parametrize("others", [(), ("worker-0",)], ids=["alone", "with another process"])
def test_cpu_time_counts_as_a_sign_of_life_for_a_limited_time(others):
    processes = Processes("chief-0", *others, busy_limit=60)
    processes.run(5, "chief-0", *others)
    assert processes.run(59, *others, cpu={"chief-0": 0.3}) == ([], None)
    hung, after = processes.run(30, *others, cpu={"chief-0": 0.3})
    assert hung == ["chief-0"]
    assert 5 <= after <= 24


def test_cpu_time_of_idle_threads_does_not_count():
    processes = Processes("chief-0", "worker-0")
    processes.run(5, "chief-0", "worker-0")
    hung, after = processes.run(10, "worker-0", cpu={"chief-0": 0.02})
    assert hung == ["chief-0"]
    assert 5 <= after <= 8
