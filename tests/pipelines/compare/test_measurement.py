import math

import pytest
from compared import record

from tfx_distribute.pipelines.compare.measurement import MIN_SPREAD, LossPoint, TooShortError, measure


def history(step_seconds=(0.1, 0.1, 0.1), losses=(1.0, 0.5, 0.25), task="chief-0", trace=3.0, **shares):
    """Returns windows of ten steps after ten seconds, of which the first one traces."""
    shares = shares or {"input": 0.25, "compute": 0.75}
    time, steps = 10.0, 0.0
    records = [record(time, 0, "train", task, seconds=dict.fromkeys(shares, 0.0))]
    for window, (seconds, loss) in enumerate(zip(step_seconds, losses, strict=True)):
        steps += 10 * seconds
        # Something else takes half a second of each window, such as callbacks.
        time += 10 * seconds + (trace if window == 0 else 0) + 0.5
        by_activity = {name: share * steps for name, share in shares.items()}
        by_activity |= {"trace": trace, "other": 0.5 * (window + 1)}
        records.append(record(time, 10 * (window + 1), task=task, metrics={"loss": loss}, seconds=by_activity))
    return records


def test_the_warm_up_and_other_activities_do_not_count():
    measured = measure(history(), launched=8.0)
    assert (measured.train_steps, measured.warmup_steps, measured.global_batch_size, measured.replicas) == (30, 10, 64, 2)
    assert measured.startup_seconds == 2.0
    assert measured.warmup_seconds == pytest.approx(4.5)
    assert measured.seconds == pytest.approx(2.0)
    assert measured.examples_per_second == pytest.approx(640)
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.25), None)
    assert measured.spread == MIN_SPREAD
    assert measured.losses[0] == LossPoint(10, pytest.approx(1.0), 1.0)
    assert (measured.loss, measured.reached(0.5).step, measured.reached(0.2)) == (0.25, 20, None)


def test_shares_are_means_over_the_processes():
    slow = history((0.5, 0.5, 0.5), task="worker-0", input=0.5, compute=0.5, wait_for_peers=0.0)
    fast = history((0.5, 0.5, 0.5), input=0.1, compute=0.4, wait_for_peers=0.5)
    measured = measure([*slow, *fast], launched=0.0)
    assert (measured.input_share, measured.wait_share) == (pytest.approx(0.3), pytest.approx(0.25))
    assert measured.slowest.startswith("worker 0 holds the others back for 50 % of the time")


def test_an_uneven_speed_has_a_spread():
    measured = measure(history([0.1, 0.1, 0.2, 0.1, 0.2, 0.3], losses=[1.0] * 6), launched=0.0)
    assert measured.spread == pytest.approx(0.375)


def test_losses_that_are_not_finite_do_not_count():
    measured = measure(history(losses=(math.nan, math.inf, 0.5)), launched=0.0)
    assert (measured.loss, measured.reached(10).step, measured.diverged) == (0.5, 30, None)
    assert measure(history(losses=[math.nan] * 3), launched=0.0).loss is None


def test_a_training_that_has_diverged_has_no_loss():
    measured = measure(history([0.1] * 4, losses=(math.inf, 0.5, math.inf, math.nan)), launched=0.0)
    assert (measured.diverged.step, measured.loss, measured.reached(10)) == (30, None, None)


def test_without_times_of_activities_the_clock_counts():
    records = [record(1.0, 0, "train"), record(2.0, 10), record(4.0, 20), record(6.0, 30)]
    measured = measure(records, launched=9.0)  # by a clock that is ahead
    assert (measured.seconds, measured.startup_seconds) == (4.0, 0.0)
    assert (measured.input_share, measured.core_wait_share, measured.losses) == (None, None, ())


@pytest.mark.parametrize(
    "records",
    [
        [],
        [record(1.0, 0, "train")],
        [record(1.0, 0, "train"), record(2.0, 10)],
        [record(1.0, 0, "train"), record(2.0, 10), record(2.0, 20)],
        [record(1.0, 0, "train"), record(2.0, 10), record(3.0, 10)],
        [record(1.0, 0, "train", "worker-0"), record(2.0, 10, task="worker-0"), record(3.0, 20, task="worker-0")],
    ],
)
def test_too_short(records):
    with pytest.raises(TooShortError):
        measure(records, launched=0.0)
