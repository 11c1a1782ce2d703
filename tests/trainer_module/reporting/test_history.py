import json
import math
import subprocess
import sys

from tfx_distribute.trainer_module.reporting import history
from tfx_distribute.trainer_module.reporting.progress import Progress


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
