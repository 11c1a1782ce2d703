import pytest
from compared import record

from tfx_distribute.pipelines.compare.measurement import measure
from tfx_distribute.trainer_module.errors import TrainingError


def history(step_seconds=0.1, task="chief-0", **shares):
    """Returns three epochs of ten steps; tracing is part of the first one."""
    records = []
    for epoch in (1, 2, 3):
        # Something else takes half a second of each epoch, such as callbacks.
        seconds = {name: share * 10 * epoch * step_seconds for name, share in shares.items()}
        seconds |= {"trace": 3.0, "other": 0.5 * epoch}
        time = 13.0 + epoch * (10 * step_seconds + 0.5)
        records.append(record(time, 10 * epoch, task=task, metrics={"loss": 1 / epoch}, seconds=seconds))
    return records


def test_the_warm_up_and_other_activities_do_not_count():
    measured = measure(history(input=0.25, compute=0.75))
    assert (measured.batch, measured.seconds, measured.loss) == (64, pytest.approx(2.0), pytest.approx(1 / 3))
    assert measured.examples_per_second == pytest.approx(640)
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.25), None)


def test_shares_are_means_over_the_processes():
    slow = history(0.5, task="worker-0", input=0.5, compute=0.5, wait_for_peers=0.0)
    fast = history(0.5, input=0.1, compute=0.4, wait_for_peers=0.5)
    measured = measure([*slow, *fast])
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.3), pytest.approx(0.25))
    assert measured.slowest.startswith("worker 0 holds the others back for 50 % of the time")


def test_without_times_of_activities_the_clock_counts():
    measured = measure([record(2.0, 10), record(4.0, 20), record(6.0, 30)])
    assert (measured.seconds, measured.input_share, measured.wait_share, measured.loss) == (4.0, None, None, None)


@pytest.mark.parametrize("records", [[], history()[:1], history(task="worker-0")])
def test_too_short(records):
    with pytest.raises(TrainingError, match="too few to measure"):
        measure(records)
