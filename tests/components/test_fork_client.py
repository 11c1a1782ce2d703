"""Tests that module commands do not import from the working folder."""

import subprocess

from tfx_distribute.components.fork_client import module_command


def test_nothing_is_imported_from_the_working_folder(tmp_path):
    for name in ("json", "runpy", "selectors", "tool"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working folder')")
    done = subprocess.run(
        module_command("json.tool"), cwd=tmp_path, input="[1]", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["[", "1", "]"]), done.stderr
