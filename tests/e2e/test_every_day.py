"""Runs a pipeline each morning for a while, in which what happens every day happens."""

import re

import pytest
import webhook
from daily_data import write_day

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]  # six runs


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

        write_day(days, "2026-11-02", columns=("x", "label"))
        assert "y (train): Column is completely missing" in morning(code=4)
        assert "2026-11-02 is the newest, and run" in morning(code=0), "nobody is told each hour"
        (days / "2026-11-02.csv").unlink()
        assert "span 2026-11-02 does not exist" in command("run", file, *root, "-p", "span=2026-11-02").output

        write_day(days, "2026-11-03", shift=1.0)
        assert "x (train): The approximate Jensen-Shannon divergence between current and previous is" in morning(code=4)
        accepted = command("run", file, *root, "-p", "stop_on_anomalies=false")
        assert accepted.code == 0, accepted.output
        served = served_version(command, root)

        write_day(days, "2026-11-04", shift=1.0, is_noise=True)
        morning(code=3)
        assert served_version(command, root) == served, "that of the day before"

        (tmp_path / "strike").touch()
        module, first_line = file.with_name("model.py"), "    vocabularies = "
        struck = module.read_text().replace(first_line, f'    strike("{tmp_path}/strike")\n{first_line}')
        module.write_text(struck + STRIKE)
        write_day(days, "2026-11-05", shift=1.0)
        write_day(days, "2026-11-06", shift=1.0)
        output = morning("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2", code=0)
        assert "no run has read 2026-11-05; run --backfill" in output, "the schedule was missed"
        assert "worker 0 failed (killed by SIGKILL, as when memory runs out" in output
        assert "restart 1 of 3" in output
        assert served_version(command, root) != served
        assert command("models", "rollback", served, *root).code == 0
        assert re.search(rf" served rollback of {served} ", command("models", "list", *root).output)

    titles = [message["title"].removeprefix("mine: ") for message in told.messages]
    assert titles == ["succeeded", "stopped", "failed", "stopped", "recovered", "not blessed", "recovered"]
    bodies = [message["message"] for message in told.messages]
    assert "spans: 2026-11-01" in bodies[0]
    assert "y (train): Column is completely missing" in bodies[1]
    assert "span 2026-11-02 does not exist" in bodies[2]
    assert "Jensen-Shannon divergence" in bodies[3]
    assert "not read" not in bodies[4]
    assert re.search(r"SparseCategoricalAccuracy: \S+ \(>= 0.75 not met; last run \S+\)", bodies[5])
    assert "(not pushed)" in bodies[5]
    assert "not read: 2026-11-05\n" in bodies[6]
    kinds = [message["type"] for message in told.messages]
    assert kinds == ["success"] + ["failure"] * 3 + ["success", "failure", "success"]
    pruned = command("runs", "prune", "--keep", "1", *root)
    assert pruned.code == 0, pruned.output
    states = re.findall(r"^\S+ +mine +(\w+(?: blessed)?)", command("runs", "list", *root).output, re.MULTILINE)
    assert states == ["complete", "not blessed", "complete", "stopped", "stopped", "complete"]
