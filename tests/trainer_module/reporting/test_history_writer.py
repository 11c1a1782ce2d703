import time

import pytest

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.reporting import history, history_writer
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


def write(folder, error, reports):
    reporter = Reporter(str(folder / "progress"), "worker-1")
    with history_writer.writing(reporter, str(folder / "run")):
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
def test_a_try_that_ends_early_says_why(tmp_path, error, phase, message):
    with pytest.raises(type(error)):
        write(tmp_path, error, [Progress("start"), Progress("train", 9, 20, seconds={"input": 1.0})])
    *_, last = records = history.read(str(tmp_path / "run"))
    assert [record.phase for record in records] == ["start", "train", phase]
    assert len({(record.task, record.started) for record in records}) == 1
    assert (last.step, last.train_steps, last.message) == (9, 20, message)
    assert history.time_use(records).processes[0].seconds == {"input": 1.0}


def test_a_folder_that_cannot_be_written_does_not_end_the_training(tmp_path):
    (tmp_path / "run").write_text("a file")
    write(tmp_path, None, [Progress("start"), Progress("done")])
    assert history.read(str(tmp_path / "run")) == []


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


def test_the_newest_line_is_flushed_though_no_other_follows(tmp_path):
    writer = history_writer.HistoryWriter(str(tmp_path / "history"), "a.jsonl")
    writer._flush_seconds = 0.5
    for step in (1, 2):
        writer.add(Progress("train", step, message="saved"))
    until(lambda: [record.step for record in history.read(str(tmp_path))] == [1, 2])
    writer.close()


def test_nothing_piles_up_after_giving_up(tmp_path):
    (tmp_path / "run").write_text("a file")
    writer = history_writer.HistoryWriter(str(tmp_path / "run"), "a.jsonl")
    until(lambda: not writer._thread.is_alive())
    writer.add(Progress("start"))
    assert writer._lines.empty()
