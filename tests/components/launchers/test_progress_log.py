from tfx_distribute.components.launchers import progress_log
from tfx_distribute.trainer_module.job.cluster import CHIEF_TASK
from tfx_distribute.trainer_module.reporting.progress import Progress


def test_a_day_of_training_is_a_hundred_lines(monkeypatch):
    lines, now = [], 0.0
    monkeypatch.setattr(progress_log.logging, "info", lambda text, *values: lines.append(text % values))
    monkeypatch.setattr(progress_log.time, "monotonic", lambda: now)
    log = progress_log.ProgressLog()
    log(CHIEF_TASK, Progress("start"))
    for step in range(1, 24 * 3600):
        now += 1.0
        log(CHIEF_TASK, Progress("train", step, 24 * 3600, message="saved" if step == 80_000 else ""))
    log(CHIEF_TASK, Progress("done", 24 * 3600, 24 * 3600))
    assert 50 < len(lines) < 120
    assert "chief: train; training step 80000 of 86400; saved" in lines
    assert lines[-1] == "chief: done; training step 86400 of 86400"
