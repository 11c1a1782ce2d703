"""Tests that two live runs cannot use one folder, and that an ended run frees it."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tfx_distribute.components.launchers import locks
from tfx_distribute.pipelines.cli.main import main
from tfx_distribute.trainer_module.errors import ConfigurationError

HOLD = """
import os, sys, time
from tfx_distribute.components.launchers import locks
with locks.exclusive(sys.argv[1], "the run folder", "wait"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold():
    """Returns a function that starts a process that holds the lock of a folder."""
    processes = []

    def start(folder):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def take(folder):
    with locks.exclusive(str(folder), "the run folder", "wait until it ends"):
        file = folder / locks.LOCK_FILE
        assert json.loads(file.read_text())["pid"] == os.getpid()
        assert file.stat().st_mode & 0o777 == 0o600, "any user who can open the file could hold the lock"


def test_the_holder_is_named(tmp_path, hold):
    process = hold(tmp_path)
    with pytest.raises(ConfigurationError) as refusal:
        take(tmp_path)
    parts = (
        f"the run folder {tmp_path} is in use by process {process.pid} on ",
        "running since 20",
        "-c",
        "wait until it ends",
    )
    assert all(part in str(refusal.value) for part in parts)


def test_a_killed_holder_blocks_nobody(tmp_path, hold):
    process = hold(tmp_path)
    assert locks.find_holder(str(tmp_path)).pid == process.pid
    process.kill()
    process.wait()
    assert locks.find_holder(str(tmp_path)) is None
    take(tmp_path)
    assert not (tmp_path / locks.LOCK_FILE).exists()


def test_a_second_time_in_the_same_process_is_refused_too(tmp_path):
    with locks.exclusive(str(tmp_path), "the run folder", "wait"), pytest.raises(ConfigurationError, match="in use by"):
        take(tmp_path)


def test_a_folder_that_its_holder_removed_is_free(tmp_path):
    with locks.exclusive(str(tmp_path / "state"), "the state", "wait"):
        (tmp_path / "state" / locks.LOCK_FILE).unlink()
        (tmp_path / "state").rmdir()
        with locks.exclusive(str(tmp_path / "state"), "the state", "wait"):
            pass
    assert list((tmp_path / "state").iterdir()) == []


def test_a_link_in_place_of_the_lock_is_not_opened(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / locks.LOCK_FILE).symlink_to(victim)
    with pytest.raises(ConfigurationError, match="remove that file"):
        take(tmp_path / "state")
    assert victim.read_text() == "mine"


def test_object_stores_have_no_locks():
    with locks.exclusive("gs://bucket/state", "the state", "wait"):
        pass


def test_second_run_in_the_same_folder_is_refused_at_once(tmp_path, hold):
    process = hold(tmp_path / "root")
    began = time.monotonic()
    example = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "digits", "pipeline.yaml")
    done = CliRunner().invoke(main, ["run", example, "--root", str(tmp_path / "root")])
    assert done.exit_code == 2
    assert not list((tmp_path / "root" / "artifacts").iterdir()), "no node was started"
    assert time.monotonic() - began < 60
    assert f"in use by process {process.pid}" in done.output
