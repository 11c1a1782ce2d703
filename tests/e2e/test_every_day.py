"""Runs a pipeline each morning for a while, in which what happens every day happens."""

import re

import pytest
import webhook
from daily_data import write_day

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]  # five runs


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
    text += "validate: {drift: {x: 0.2}}\nnotify: {urls: TOLD, when: [succeeded, recovered, failed, stopped]}\n"
    file.write_text(text)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with webhook.receiving() as told:
        monkeypatch.setenv("TOLD", told.address)

        def morning(*words, code):
            done = command("run", file, *root, "--if-new", *words)
            assert done.code == code, done.output
            return done.output

        morning(code=0)
        accepted = command("schema", "accept", file, *root)
        assert f"write schema_file: schema.pbtxt under data in {file}" in accepted.output
        schema = file.with_name("schema.pbtxt")
        accepted_schema = schema.read_text()
        assert command("schema", "show", *root).output.endswith(accepted_schema)
        file.write_text(text.replace("  splits:", "  schema_file: schema.pbtxt\n  splits:"))
        schema.write_text(accepted_schema.replace('  value: "no"\n', ""))
        changes = command("schema", "diff", file, *root).output
        assert re.findall(r"^[+-] .*", changes, re.MULTILINE) == ['+  value: "no"']
        schema.write_text(accepted_schema)
        assert "no new span: 2026-11-01 is the newest" in morning(code=0)
        assert "span 2026-11-02 does not exist" in command("run", file, *root, "-p", "span=2026-11-02").output

        write_day(days, "2026-11-03", shift=1.0)
        assert "x (train): The approximate Jensen-Shannon divergence between current and previous is" in morning(code=4)
        assert "2026-11-03 is the newest, and run" in morning(code=0), "nobody is told each hour"
        write_day(days, "2026-11-05", shift=1.0)
        day = ("--backfill", "2026-11-03..2026-11-03")
        accepted = command("run", file, *root, *day, "-p", "stop_on_anomalies=false")
        assert accepted.code == 0, accepted.output
        assert "span 2026-11-03" in accepted.output.splitlines()
        served = served_version(command, root)

        (tmp_path / "strike").touch()
        module, first_line = file.with_name("model.py"), "    vocabularies = "
        struck = module.read_text().replace(first_line, f'    strike("{tmp_path}/strike")\n{first_line}')
        module.write_text(struck + STRIKE)
        write_day(days, "2026-11-06", shift=1.0)
        workers = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
        output = morning(*workers, code=0)
        assert "worker 0 failed (killed by SIGKILL, as when memory runs out" in output
        assert "restart 1 of 3" in output
        assert served_version(command, root) != served

        assert command("models", "rollback", served, *root).code == 0
        assert re.search(rf" served rollback of {served} ", command("models", "list", *root).output)

    titles = [message["title"].removeprefix("mine: ") for message in told.messages]
    assert titles == ["succeeded", "failed", "stopped", "recovered", "succeeded"]
    bodies = [message["message"] for message in told.messages]
    assert "spans: 2026-11-01" in bodies[0]
    assert "span 2026-11-02 does not exist" in bodies[1]
    assert "Jensen-Shannon divergence" in bodies[2]
    assert "spans: 2026-11-03" in bodies[3], "not the newest one"
    assert "spans: 2026-11-06" in bodies[4]
    kinds = [message["type"] for message in told.messages]
    assert kinds == ["success"] + ["failure"] * 2 + ["success"] * 2
    pruned = command("runs", "prune", "--keep", "1", *root)
    assert pruned.code == 0, pruned.output
    states = re.findall(r"^\S+ +mine +(\w+(?: blessed)?)", command("runs", "list", *root).output, re.MULTILINE)
    assert states == ["complete", "complete", "stopped", "complete"]
