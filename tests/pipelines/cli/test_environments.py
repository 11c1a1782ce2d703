"""Tests hostile environments: a table of shell commands, exit codes and messages.

A new finding becomes a new row.
"""

import os
import subprocess
import sys

import pytest
from small_project import PIPELINE

# A user without root's rights.
AS_PLAIN_USER = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-dac_override,-dac_read_search" * (
    os.geteuid() == 0
)
IN_ASCII = "env LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"

ENVIRONMENT_ROWS = [  # shell command, exit code, message
    ("set -o pipefail; $CLI json-schema | true", 1, ""),
    ("env LC_ALL=C $CLI validate größe.yaml", 0, "größe.yaml: valid"),
    (f"{IN_ASCII} $CLI validate ascii.yaml", 0, "valid (mine: build_model of"),
    (f"chmod 0 pipeline.yaml; {AS_PLAIN_USER} $CLI validate pipeline.yaml", 2, "pipeline.yaml: Permission denied"),
    (f"chmod 500 .; {AS_PLAIN_USER} $CLI run pipeline.yaml", 2, "runs/mine: Permission denied; write another --root"),
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
    done = subprocess.run(
        ["bash", "-c", script],  # noqa: S607
        cwd=project,
        env={**os.environ, "CLI": f"{sys.executable} -m tfx_distribute.pipelines"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert message in done.stdout
    assert "Traceback" not in done.stdout
    assert "Exception" not in done.stdout
