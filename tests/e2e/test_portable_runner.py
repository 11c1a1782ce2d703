"""Runs Beam's portable runner Prism: its program is named by `PRISM`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.e2e

MATRIX = Path(__file__).parents[1] / "fakes" / "beam_components.py"
WORKER = Path(sys.executable).with_name("tfx-distribute-beam-worker")


def settings(endpoint: str) -> list[dict[str, object]]:
    # Waits longer for workers than the default: other tests run at the same time.
    shared = {"runner": "portable", "job_endpoint": endpoint, "options": {"job_server_timeout": 120}}
    return [
        {**shared, "environment_type": "LOOPBACK"},
        {**shared, "environment_type": "PROCESS", "environment_config": str(WORKER)},
    ]


@pytest.mark.timeout(900)
def test_components_make_the_same_as_the_direct_runner(request, prism, tmp_path):
    """With the taxi example, whose Transform has analyses of all kinds."""
    pipeline = request.config.rootpath / "examples" / "taxi" / "pipeline.yaml"
    words = [sys.executable, str(MATRIX), str(pipeline), str(tmp_path), *map(json.dumps, settings(prism))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"component"')]
    assert len(rows) == 4 * 2
    print(*rows, sep="\n")


@pytest.mark.timeout(300)
def test_a_local_run_with_workers_in_its_process(command, request, prism, tmp_path):
    """All of the digits but training, whose ExampleGen has code of the user."""
    pipeline = write_pipeline(request.config.rootpath, tmp_path, settings(prism)[0])
    done = command("run", pipeline, "-p", "train_steps=20")
    assert "Sharder" in done.output
    assert done.code in (0, 3), done.output  # 3: below its threshold


def write_pipeline(root: Path, folder: Path, beam: dict[str, object]) -> Path:
    for name in ("model.py", "digits_data.py"):
        (folder / name).write_text((root / "examples" / "digits" / name).read_text())
    document = yaml.safe_load((root / "examples" / "digits" / "pipeline.yaml").read_text())
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**document, "beam": beam}))
    return path
