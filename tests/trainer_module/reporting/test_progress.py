"""Tests how often a training process reports."""

import itertools

from tfx_distribute.trainer_module.reporting import progress


def test_a_long_training_reports_more_rarely(tmp_path, monkeypatch):
    """Its reports stay in a file for as long as it trains."""
    clock = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    reporter = progress.Reporter(str(tmp_path / "progress"))
    times = []
    while clock[0] < 1000.0 + 24 * 3600:
        if reporter.due():
            reporter.report(progress.Progress("train", step=len(times), metrics={"loss": 0.5, "accuracy": 0.75}))
            times.append(clock[0] - 1000.0)
        clock[0] += 0.25
    assert times[:4] == [0.0, 0.5, 1.0, 1.5]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) == 30.0
    assert (tmp_path / "progress").stat().st_size < 3e6
