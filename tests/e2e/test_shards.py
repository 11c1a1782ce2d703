"""Tests shards through the command line.

Beam in several processes, shards that workers share, and damage between two runs.
"""

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


@pytest.fixture
def pipeline(request, tmp_path) -> Path:
    """Runs the digits with two Beam processes, and three shards for two workers."""
    folder = request.config.rootpath / "examples" / "digits"
    text = (folder / "pipeline.yaml").read_text()
    text += "\nbeam: {direct_num_workers: 2}\nshards: {num_shards: 3, compression: gzip}\n"
    for name in ("model.py", "digits_data.py"):
        (tmp_path / name).write_text((folder / name).read_text())
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    return path


def test_shards_that_workers_share_and_what_a_damaged_one_does(command, pipeline, tmp_path):
    workers = ("-p", "strategy=multi_worker_mirrored", "-p", "num_workers=2")
    planned = command("plan", pipeline, *workers)
    assert "3 shards do not divide among 2 processes: each reads 3 of them whole" in planned.output

    first = command("run", pipeline, *workers)
    assert first.code == 0, first.output
    assert re.search(r"SparseCategoricalAccuracy +[\d.]+ +>= 0.95  met", first.output)
    (written,) = (tmp_path / "runs" / "digits" / "artifacts" / "Sharder" / "sharded_examples").iterdir()
    manifest = json.loads((written / "manifest.json").read_text())
    assert [shard["num_examples"] for shard in manifest["splits"]["train"]["shards"]] == [472, 471, 471]
    assert len(list((written / "Split-eval").iterdir())) == 3
    assert not list((written.parents[1] / ".system" / "executor_execution").glob("*/*/*")), "nothing of the meantime is left"

    # The shards come from the cache; one has changed since.
    shard = written / manifest["splits"]["train"]["shards"][1]["file"]
    shard.write_bytes(shard.read_bytes()[:-20])
    second = command("run", pipeline, "-p", "strategy=one_device")
    assert second.code == 1, second.output
    assert re.search(r"Sharder +cached", second.output)
    assert re.search(rf"examples: {shard}, record \d+ at byte \d+: .* bytes of the \d+ that were written", second.output)
