import pytest

from tfx_distribute.trainer_module.job.time_use import ProcessTime, format_shares, summarize


def process(task, *, counters=None, **seconds):
    return ProcessTime(task, seconds, counters or {})


FAST = {"input": 1.0, "compute": 4.0, "wait_for_peers": 5.0}


def test_shares_are_parts_of_the_whole_time():
    time_use = summarize([process("chief-0", input=1, compute=3), process("worker-0")])
    assert [time_use.share(activity) for activity in ("input", "compute", "save")] == [0.25, 0.75, 0.0]
    assert [process.task for process in time_use.processes] == ["chief-0"], "one that has not trained tells nothing"


@pytest.mark.parametrize(
    ("slow", "counters", "reason"),
    [
        ({"input": 6.0, "compute": 4.0}, {}, "input"),
        ({"input": 6.0, "compute": 4.0}, {"disk_wait_seconds": 5.0}, "slow_disk"),
        ({"input": 6.0, "compute": 4.0}, {"bytes_read": 160 << 20}, "uneven_shards"),
        ({"input": 1.0, "compute": 9.0}, {}, "compute"),
        ({"input": 1.0, "compute": 9.0}, {"cpu_wait_seconds": 9.0}, "busy_core"),
        ({"input": 1.0, "compute": 4.0, "save": 5.0}, {"bytes_read": 160 << 20}, "save"),
    ],
)
def test_the_slowest_process_and_why(slow, counters, reason):
    others = [
        process(task, **FAST, counters={"bytes_read": 90 << 20, "cpu_wait_seconds": 0.5}) for task in ("chief-0", "worker-1")
    ]
    time_use = summarize([*others, process("worker-0", **slow, counters={"bytes_read": 90 << 20, **counters})])
    assert (time_use.slowest, time_use.held_back, time_use.reason) == ("worker-0", 0.5, reason)
    assert time_use.describe().startswith("worker 0 holds the others back for 50 % of the time: it")


def test_waiting_that_is_part_of_computing():
    """As on accelerators, where it is not measured."""
    time_use = summarize([process("chief-0", compute=9, input=1), process("worker-0", compute=4, input=6)])
    assert (time_use.slowest, time_use.held_back, time_use.reason) == ("worker-0", 0.5, "input")


def test_processes_that_are_about_as_fast():
    time_use = summarize([process("chief-0", compute=91, wait_for_peers=9), process("worker-0", compute=100)])
    assert (time_use.slowest, time_use.reason, time_use.describe()) == ("", "", "")


@pytest.mark.parametrize(("seconds", "slowest"), [(1.9, ""), (2.1, "worker-0")])
def test_a_short_wait_is_not_worth_a_word(seconds, slowest):
    time_use = summarize([process("chief-0", compute=3.0, wait_for_peers=seconds), process("worker-0", trace=3.0 + seconds)])
    assert time_use.slowest == slowest


def test_the_time_of_processes_that_were_measured_for_different_times():
    time_use = summarize([process("chief-0", compute=5, wait_for_peers=5), process("worker-0", compute=2)])
    assert (time_use.slowest, time_use.held_back) == ("worker-0", 0.5)


def test_shares_that_matter_the_largest_first():
    assert format_shares({"input": 0.2, "wait_for_peers": 0.3, "save": 0.009, "compute": 0.491}) == (
        "compute 49 %, waiting for peers 30 %, input 20 %"
    )


def test_the_time_since_a_moment():
    assert process("chief-0", input=3.0, compute=2.0).since({"input": 1.0}, {}).seconds == {"input": 2.0, "compute": 2.0}
