"""Tests what the script that makes the environment leaves alone."""

import shutil
import subprocess


def test_an_environment_that_it_did_not_make_is_kept(request, tmp_path):
    shutil.copy(request.config.rootpath / "bootstrap.sh", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    done = subprocess.run(["./bootstrap.sh"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: .venv was not made by bootstrap.sh")
    assert (tmp_path / ".venv" / "pyvenv.cfg").exists()
