import time

import pytest

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.reporting import history, history_writer
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

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


@pytest.fixture
def writer(tmp_path):
    writer = history_writer.HistoryWriter(str(tmp_path), WORKER)
    yield writer
    writer.close()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_a_message_with_bytes_that_are_not_text(tmp_path):
    with pytest.raises(FileNotFoundError):
        write(tmp_path, FileNotFoundError("caf\udce9.csv"), [])
    assert [record.message for record in history.read(str(tmp_path / "run"))] == [r"FileNotFoundError: caf\udce9.csv"]


def test_an_error_that_has_no_text(tmp_path):
    class UnprintableError(Exception):
        def __str__(self):
            raise ZeroDivisionError

    with pytest.raises(UnprintableError):
        write(tmp_path, UnprintableError(), [Progress("start")])
    assert [record.phase for record in history.read(str(tmp_path / "run"))] == ["start"]


def test_the_newest_line_is_flushed_though_no_other_follows(tmp_path, writer):
    writer._flush_seconds = 0.5
    for step in (1, 2):
        writer.add(Progress("train", step, message="saved"))
    until(lambda: [record.step for record in history.read(str(tmp_path))] == [1, 2])


def test_nothing_piles_up_after_giving_up(tmp_path):
    (tmp_path / "run").write_text("a file")
    writer = history_writer.HistoryWriter(str(tmp_path / "run"), WORKER)
    until(lambda: not writer._thread.is_alive())
    writer.add(Progress("start"))
    assert writer._records.empty()
