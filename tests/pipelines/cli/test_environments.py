"""Tests hostile environments: a table of shell commands, exit codes and messages.

A new finding becomes a new row.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_project import LINEAR_MODEL, PIPELINE

# A user without a name who may read what root may read, and a user
# without root's rights.
AS_NOBODY = (
    "setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "
    "env -u USER -u LOGNAME HOME=/"
)
AS_PLAIN_USER = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search" * (
    os.geteuid() == 0
)
IN_ASCII = "env LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"

ENVIRONMENT_ROWS = [  # shell command, exit code, message
    ("set -o pipefail; $CLI json-schema | true", 1, ""),
    ("env LC_ALL=C $CLI validate größe.yaml", 0, "größe.yaml: valid"),
    (f"{IN_ASCII} $CLI validate ascii.yaml", 0, "valid (mine: build_model of"),
    (f"{IN_ASCII} $CLI validate pipeline.yaml -p text=ä", 2, "is not valid text in the encoding of the terminal"),
    ("env -u HOME TERM=dumb COLUMNS=1 TMPDIR=/nowhere PYTHONPATH=:/nowhere:$'a\\nb' $CLI plan pipeline.yaml", 0, "chief"),
    (
        "KERAS_BACKEND=torch $CLI run pipeline.yaml",
        2,
        "KERAS_BACKEND=torch: strategies of tf.distribute need tensorflow; run",
    ),
    (f"chmod 0 pipeline.yaml; {AS_PLAIN_USER} $CLI validate pipeline.yaml", 2, "pipeline.yaml: Permission denied"),
    (f"chmod 500 .; {AS_PLAIN_USER} $CLI run pipeline.yaml", 2, "runs/mine: Permission denied; write another --root"),
    ("touch file; $CLI run pipeline.yaml --root file/x", 2, "file/x: Not a directory; write another --root"),
    ("touch file; $CLI run pushed.yaml", 2, "file: Not a directory; write another --root, or another push.directory"),
    (
        "echo \"raise ModuleNotFoundError(name='kfp')\" >kfp_server_api.py; PYTHONPATH=. $CLI runs list --target kubeflow",
        2,
        "the package kfp is not installed, and pipelines for Kubeflow Pipelines and Vertex AI need it; write `uv pip",
    ),
]


@pytest.mark.parametrize(("script", "code", "message"), ENVIRONMENT_ROWS, ids=[row[0] for row in ENVIRONMENT_ROWS])
def test_environments(project, script, code, message):
    for name in ("größe.yaml", "ascii.yaml"):
        if name in script:
            (project / name).write_text(PIPELINE.replace("abc", "größer →"), encoding="utf-8")
    if "pushed" in script:
        (project / "pushed.yaml").write_text(PIPELINE + "push: {directory: file/serving}\n")
    done = shell(project, script, seconds=60)
    assert done.returncode == code, done.stdout
    assert message in done.stdout
    assert "Traceback" not in done.stdout
    assert "Exception" not in done.stdout


def shell(folder: Path, script: str, seconds: float, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script],  # noqa: S607
        cwd=folder,
        env={**os.environ, "CLI": f"{sys.executable} -m tfx_distribute.pipelines", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Yields a folder that any user can read, unlike the folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="strange-"))
    for parent in (folder, *folder.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(0o711)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.e2e
def test_run_in_strange_surroundings(public_folder):
    """A user without name or locale, odd folder names, a broken pipe."""
    folder = public_folder / "a [b]*? ä\n\\"
    root = public_folder / "o ä 'x\",;:%#{}$&()~!@^=+|<>"
    temporary = public_folder / "tmp"
    for new_folder in (folder, root, temporary):
        new_folder.mkdir()
    (folder / "model.py").write_text(LINEAR_MODEL)
    # The data is elsewhere, because file-based ExampleGens read its path as a pattern.
    (public_folder / "data.csv").write_text("x,y\n" + "".join(f"{i / 60},{i / 30}\n" for i in range(60)))
    (folder / "schema [1].pbtxt").write_text(
        "".join(
            f'feature {{ name: "{name}" type: FLOAT presence {{ min_fraction: 1 }} shape {{ dim {{ size: 1 }} }} }}\n'
            for name in "xy"
        )
    )
    (folder / "pipeline.yaml").write_text(
        PIPELINE.replace("csv: data", "csv: ../data.csv, schema_file: 'schema [1].pbtxt'").replace("abc", "größe")
        + "push: {directory: 'push [1]*'}\n"
    )
    user = ""
    if os.geteuid() == 0:
        user = AS_NOBODY
        for new_folder in (folder, root, temporary):
            os.chown(new_folder, 12345, 12345)
    done = shell(
        folder,
        f'set -o pipefail; {user} env LC_ALL=C COLUMNS=1 $CLI run -v pipeline.yaml --root "$ROOT" 2>&1 | head -1',
        seconds=280,
        ROOT=str(root),
        TMPDIR=str(temporary),
    )
    (log,) = root.glob("logs/*/run.log")
    assert done.returncode == 0, log.read_text()[-3000:]
    assert len(done.stdout.splitlines()) == 1, "the rest had no reader"
    assert len(list((folder / "push [1]*").rglob("saved_model.pb"))) == 1
    assert list(temporary.iterdir()) == []
