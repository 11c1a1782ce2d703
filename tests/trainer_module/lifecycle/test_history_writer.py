import pytest

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.lifecycle import history, history_writer
from tfx_distribute.trainer_module.lifecycle.progress import Progress, Reporter

WORKER = ClusterTask("worker", 1)


def write(folder, error, reports):
    reporter = Reporter(str(folder / "progress"))
    with history_writer.writing(reporter, str(folder / "run"), WORKER):
        for progress in reports:
            reporter.report(progress)
        if error:
            raise error


@pytest.mark.parametrize(
    ("error", "phase", "message"),
    [
        (ZeroDivisionError("of a module"), "failed", "ZeroDivisionError: of a module"),
        (
            PreemptedError("asked to stop; saved after training step 9"),
            "stopped",
            "asked to stop; saved after training step 9",
        ),
    ],
)
def test_a_try_that_ends_early_says_why(tmp_path, monkeypatch, error, phase, message):
    monkeypatch.setenv(TRY, "first")
    with pytest.raises(type(error)):
        write(tmp_path, error, [Progress("start"), Progress("train", 9, 20, seconds={"input": 1.0})])
    *_, last = records = history.read(str(tmp_path / "run"))
    assert [record.phase for record in records] == ["start", "train", phase]
    assert {(record.task, record.attempt) for record in records} == {("worker-1", "first")}
    assert (last.step, last.train_steps, last.message) == (9, 20, message)
    assert history.time_use(records).processes[0].seconds == {"input": 1.0}


def test_reports_that_follow_each_other_closely_are_left_out(tmp_path):
    steps = [Progress("train", step, 20) for step in range(5)]
    write(tmp_path, None, [*steps, Progress("train", 5, 20, message="saved"), Progress("done", 20, 20)])
    assert [record.step for record in history.read(str(tmp_path / "run"))] == [0, 5, 20]


def test_a_folder_that_cannot_be_written_does_not_end_the_training(tmp_path):
    (tmp_path / "run").write_text("a file")
    write(tmp_path, None, [Progress("start"), Progress("done")])
    assert history.read(str(tmp_path / "run")) == []
