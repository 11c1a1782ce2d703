"""Runs a pipeline each morning for a while, in which what happens every day happens."""

import re

import pytest
import webhook
from daily_data import write_day

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]  # eight runs


STRIKE = """

def strike(file):
    import json, os, signal

    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    if task.get("type") == "worker" and os.path.exists(file):
        os.remove(file)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def served_version(command, root):
    listed = command("models", "list", *root)
    return re.search(r"^(\d+) +served", listed.output, re.MULTILINE)[1]


def test_mornings(command, tmp_path, monkeypatch):
    days, file, root = tmp_path / "days", tmp_path / "mine" / "pipeline.yaml", ("--root", tmp_path / "runs")
    write_day(days, "2026-11-01")
    made = command("init", tmp_path / "mine", "--from", days / "2026-11-01.csv", "--label", "label")
    assert made.code == 0, made.output
    text = re.sub(r"csv: .*", f"csv: {days}/{{YYYY}}-{{MM}}-{{DD}}.csv", file.read_text())
    text = re.sub(r"lower_bound: [\d.]+", "lower_bound: 0.75", text.replace("epochs: 20", "epochs: 2"))
    text += "validate: {drift: {x: 0.2}}\nnotify: {urls: TOLD, when: [succeeded, recovered, failed, stopped, not_blessed]}\n"
    file.write_text(text)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with webhook.receiving() as told:
        monkeypatch.setenv("TOLD", told.address)

        def morning(*words, code):
            done = command("run", file, *root, "--if-new", *words)
            assert done.code == code, done.output
            return done.output

        morning(code=0)
        assert command("schema", "accept", file, *root).code == 0
        file.write_text(text.replace("  splits:", "  schema_file: schema.pbtxt\n  splits:"))
        assert "no new span: 2026-11-01 is the newest" in morning(code=0)
        write_day(days, "2026-11-02")
        morning(code=0)

        write_day(days, "2026-11-03", columns=("x", "label"))
        assert "y (train): Column is completely missing" in morning(code=4)
        assert "2026-11-03 is the newest, and run" in morning(code=0), "nobody is told each hour"
        (days / "2026-11-03.csv").unlink()
        assert "span 2026-11-03 does not exist" in command("run", file, *root, "-p", "span=2026-11-03").output

        write_day(days, "2026-11-04", shift=1.0)
        assert "x (train): The approximate Jensen-Shannon divergence between current and previous is" in morning(code=4)
        accepted = command("run", file, *root, "-p", "stop_on_anomalies=false")
        assert accepted.code == 0, accepted.output
        served = served_version(command, root)

        write_day(days, "2026-11-05", shift=1.0, is_noise=True)
        morning(code=3)
        assert served_version(command, root) == served, "that of the day before"

        write_day(days, "2026-11-06", shift=1.0)
        write_day(days, "2026-11-07", shift=1.0)
        assert "no run has read 2026-11-06; run --backfill" in morning(code=0), "the schedule was missed"
        assert served_version(command, root) != served
        assert command("models", "rollback", served, *root).code == 0
        assert re.search(rf" served rollback of {served} ", command("models", "list", *root).output)

        write_day(days, "2026-11-08", shift=1.0)
        (tmp_path / "strike").touch()
        module, first_line = file.with_name("model.py"), "    vocabularies = "
        struck = module.read_text().replace(first_line, f'    strike("{tmp_path}/strike")\n{first_line}')
        module.write_text(struck + STRIKE)
        output = morning("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2", code=0)
        assert "worker 0 failed (killed by SIGKILL)" in output
        assert "restart 1 of 3" in output

    titles = [message["title"].removeprefix("mine: ") for message in told.messages]
    assert titles == [
        "succeeded",
        "succeeded",
        "stopped",
        "failed",
        "stopped",
        "recovered",
        "not blessed",
        "recovered",
        "succeeded",
    ]
    bodies = [message["message"] for message in told.messages]
    assert "spans: 2026-11-02" in bodies[1]
    assert "y (train): Column is completely missing" in bodies[2]
    assert "span 2026-11-03 does not exist" in bodies[3]
    assert "Jensen-Shannon divergence" in bodies[4]
    assert re.search(r"SparseCategoricalAccuracy: \S+ \(>= 0.75 not met; last run \S+\)", bodies[6])
    assert "(not pushed)" in bodies[6]
    assert "not read: 2026-11-06\n" in bodies[7]
    assert "not read" not in bodies[8]
    kinds = [message["type"] for message in told.messages]
    assert kinds == ["success"] * 2 + ["failure"] * 3 + ["success", "failure", "success", "success"]
    pruned = command("runs", "prune", "--keep", "1", *root)
    assert pruned.code == 0, pruned.output
    states = re.findall(r"^\S+ +mine +(\w+(?: blessed)?)", command("runs", "list", *root).output, re.MULTILINE)
    assert states == ["complete"] * 2 + ["not blessed", "complete"] + ["stopped"] * 2 + ["complete"] * 2
