import time

from tfx_distribute.trainer_module.loop.time_meter import TimeMeter


def test_no_more_is_moved_than_the_latest_block_has_taken():
    """The clock is set forward by an hour during a call."""
    meter = TimeMeter()
    for _ in range(2):
        with meter.spending("compute"):
            time.sleep(0.02)
    seconds = meter.seconds()["compute"]
    meter.move("compute", "other", 3600.0)
    meter.move("compute", "input", 3600.0)
    after = meter.seconds()
    assert after["compute"] >= 0.02, "the first block"
    assert after["input"] == 0.0, "all of the second block was moved before"
    assert seconds - after["compute"] >= 0.019, "the second block, which may have taken longer"
