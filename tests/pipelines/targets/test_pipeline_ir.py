"""Tests the commands of compiled steps in real processes.

The rest of what is compiled is tested with whole pipelines, in test_compiler.py of each
target.
"""

import subprocess
import sys

from tfx_distribute import __version__
from tfx_distribute.pipelines.targets import pipeline_ir


def run(words: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a step's command with the Python that runs this test."""
    assert words[0] == "python"
    command = [sys.executable, *options, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_module_of_an_image_with_the_same_version_runs():
    done = run([*pipeline_ir.make_command(pipeline_ir.ENTRYPOINT), "execute", "--help"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: python -m tfx_distribute.components.container execute" in done.stdout


def test_an_image_with_another_version_is_refused():
    done = run(pipeline_ir.make_command(pipeline_ir.ENTRYPOINT, "9.9.9"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"image: it has tfx-distribute {__version__}; build the image with tfx-distribute 9.9.9, which compiled this "
        "pipeline, under a new tag\n"
    )


def test_an_image_without_this_package_is_refused():
    done = run(pipeline_ir.make_command(pipeline_ir.ENTRYPOINT), "-S")  # without installed packages
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("image: No module named 'tfx_distribute'; build the image with tfx-distribute ")
