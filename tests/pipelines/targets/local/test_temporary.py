"""Tests that a run's temporary files have their own folder, removed at its end."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tfx_distribute.pipelines.targets.local import temporary
from tfx_distribute.trainer_module.errors import ConfigurationError


@pytest.fixture
def system(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", "/remembered")
    return tmp_path


def test_folder_is_that_of_this_process_and_of_its_children(system):
    with temporary.run_folder() as folder:
        assert folder.parent == system
        assert folder.stat().st_mode & 0o777 == 0o700
        assert Path(tempfile.mkdtemp()).parent == folder
        child = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True)  # noqa: S607
        assert Path(child.stdout.strip()).parent == folder
        assert len(f"/tmp/{folder.name}/tfx-distribute-12345678/tmp-12345678/pymp-12345678/listener-12345678") < 108, (  # noqa: S108
            "the length of a Unix socket's path"
        )
    assert list(system.iterdir()) == []
    assert (os.environ["TMPDIR"], tempfile.tempdir) == (str(system), "/remembered")


def test_folder_goes_with_a_run_that_fails(system):
    def interrupted() -> None:
        with temporary.run_folder() as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(system.iterdir()) == []


def test_folder_of_a_killed_run_is_removed_by_the_next_one_and_that_of_a_live_one_is_not(system):
    code = (
        "import tempfile, time\nfrom tfx_distribute.pipelines.targets.local import temporary\n"
        "with temporary.run_folder() as folder:\n"
        "    open(folder / 'file', 'w').close(); print(folder, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        try:
            left = Path(run.stdout.readline().strip())
            unlike = system / "tfxd-run-is-a-file"
            unlike.touch()
            link = system / "tfxd-run-link"
            link.symlink_to(system)
            with temporary.run_folder():
                assert (left / "file").exists(), "its process is alive"
            run.send_signal(signal.SIGKILL)
            run.wait(timeout=30)
            with temporary.run_folder() as folder:
                assert set(system.iterdir()) == {folder, unlike, link}
        finally:
            run.kill()


def test_temporary_folder_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/does/not/exist")
    with temporary.run_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()
    assert os.environ["TMPDIR"] == "/does/not/exist"


def test_no_temporary_folder_at_all(monkeypatch):
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/does/not/exist"])
    with pytest.raises(ConfigurationError, match="cannot make a temporary folder: .*; set TMPDIR to a folder"):
        temporary.run_folder().__enter__()
