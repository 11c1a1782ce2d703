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


def test_more_shards_than_examples(command, pipeline):
    pipeline.write_text(pipeline.read_text().replace("direct_num_workers: 2", "direct_num_workers: 1"))
    failed = command("run", pipeline, "-p", "num_shards=400")
    assert failed.code == 1, failed.output
    assert "num_shards: 400 shards are asked for, but the split 'eval' has 383 examples; write at most 383" in failed.output
    assert "Traceback" not in failed.output


def test_dataflow_is_refused_by_a_local_run(command, pipeline):
    text = pipeline.read_text().replace(
        "{direct_num_workers: 2}", "{runner: dataflow, project: p, region: r, temp_location: 'gs://b/tmp'}"
    )
    pipeline.write_text(text)
    refused = command("run", pipeline)
    assert refused.code == 2, refused.output
    assert "beam.runner: the machines of Dataflow cannot read" in refused.output
