import json
import math
import subprocess
import sys

import pytest
from running import wait_until

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.reporting import history
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


def record(task="chief-0", time=10.0, started=1.0, **fields):
    return Progress("train", time=time, task=task, started=started, **fields)


def write(folder, name, *lines):
    (folder / "history").mkdir(exist_ok=True)
    (folder / "history" / name).write_text("\n".join(lines))


def test_records_of_all_processes_in_order_of_time(tmp_path):
    records = [
        record(metrics={"loss": math.inf}, seconds={"input": 1.5}, learning_rate=0.1),
        record("worker-0", time=11.0, step=3, counters={"examples": 6.0}),
        record(time=12.0, epoch=2, message="saved"),
    ]
    write(tmp_path, "chief-0-1.jsonl", records[0].to_json(), records[2].to_json(), "")
    write(tmp_path, "worker-0-1.jsonl", records[1].to_json())
    assert history.read(str(tmp_path)) == records


def test_lines_that_are_torn_or_have_other_keys(tmp_path):
    newer = json.loads(record(step=7).to_json()) | {"of_the_future": [1]}
    write(tmp_path, "a.jsonl", json.dumps(newer), '{"time": 5, "task": "chief-0"}', "[]", '{"time": 1')
    (tmp_path / "history" / "b.jsonl").write_bytes(b"\xff\n" + record(step=9).to_json().encode())
    assert [found.step for found in history.read(str(tmp_path))] == [7, 9]
    assert history.read(str(tmp_path / "missing")) == []


def test_time_use_is_that_of_the_latest_try(tmp_path):
    records = [
        record("worker-0", started=1.0, time=50.0, seconds={"save": 9.0}),
        record("worker-0", started=60.0, time=70.0, seconds={"compute": 5.0}),
        record("worker-0", started=60.0, time=80.0, seconds={"compute": 10.0}),
        record("worker-0", started=60.0, time=90.0),
        record("chief-0", started=61.0, time=80.0, seconds={"compute": 5.0, "wait_for_peers": 5.0}),
    ]
    time_use = history.time_use(records)
    assert [(process.task, process.seconds["compute"]) for process in time_use.processes] == [
        ("chief-0", 5),
        ("worker-0", 10),
    ]
    assert (time_use.slowest, time_use.reason) == ("worker-0", "compute")


def test_reading_needs_no_tensorflow(tmp_path):
    code = (
        "import sys; from tfx_distribute.trainer_module.reporting import history; "
        f"history.read({str(tmp_path)!r}); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def report(folder, error, reports):
    reporter = Reporter(str(folder / "progress"), "worker-1")
    with history.writing(reporter, str(folder / "run")):
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
        report(tmp_path, error, [Progress("start"), Progress("train", 9, 20, seconds={"input": 1.0})])
    *_, last = records = history.read(str(tmp_path / "run"))
    assert [record.phase for record in records] == ["start", "train", phase]
    assert len({(record.task, record.started) for record in records}) == 1
    assert (last.step, last.train_steps, last.message) == (9, 20, message)
    assert history.time_use(records).processes[0].seconds == {"input": 1.0}


def test_a_folder_that_cannot_be_written_does_not_end_the_training(tmp_path):
    (tmp_path / "run").write_text("a file")
    report(tmp_path, None, [Progress("start"), Progress("done")])
    assert history.read(str(tmp_path / "run")) == []


def test_a_message_with_bytes_that_are_not_text(tmp_path):
    with pytest.raises(FileNotFoundError):
        report(tmp_path, FileNotFoundError("caf\udce9.csv"), [])
    assert [record.message for record in history.read(str(tmp_path / "run"))] == [r"FileNotFoundError: caf\udce9.csv"]


def test_the_newest_line_is_flushed_though_no_other_follows(tmp_path):
    writer = history.HistoryWriter(str(tmp_path / "history"), "a.jsonl")
    writer._flush_seconds = 0.5
    for step in (1, 2):
        writer.add(Progress("train", step, message="saved"))
    wait_until(lambda: [record.step for record in history.read(str(tmp_path))] == [1, 2])
    writer.close()


def test_nothing_piles_up_after_giving_up(tmp_path):
    (tmp_path / "run").write_text("a file")
    writer = history.HistoryWriter(str(tmp_path / "run"), "a.jsonl")
    wait_until(lambda: not writer._thread.is_alive())
    writer.add(Progress("start"))
    assert writer._lines.empty()
