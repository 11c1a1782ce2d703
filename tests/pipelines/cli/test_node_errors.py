import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_distribute.pipelines.cli.node_errors import explain, find_full_disk
from tfx_distribute.trainer_module.errors import ConfigurationError

HERE = Path(__file__).parent


def raised(function) -> BaseException:
    try:
        function()
    except (Exception, SystemExit) as error:
        return error
    raise AssertionError("nothing was raised")


def wrapped():
    try:
        {}["lost"]
    except KeyError as error:
        raise RuntimeError("while running a node") from error


def test_the_first_of_a_chain_is_shown_with_the_users_line():
    assert explain(raised(wrapped), HERE) == f"KeyError: 'lost'\n  at {__file__}, line 24, in wrapped\n    {{}}[\"lost\"]"


def test_a_message_for_people_is_given_as_it_is():
    def wrong():
        try:
            raise OSError("Address already in use")
        except OSError as error:
            raise ConfigurationError("serving_dir: is taken; write another") from error

    assert explain(raised(wrong), HERE) == "serving_dir: is taken; write another"


def test_exit_is_named_with_the_users_line():
    import sys

    lines = explain(raised(lambda: sys.exit(0)), HERE).splitlines()
    assert lines[0].startswith(f"sys.exit(0) was called in {__file__}, line ")
    assert lines[-1] == "    lines = explain(raised(lambda: sys.exit(0)), HERE).splitlines()"


def test_long_messages_are_cut():
    lines = explain(ValueError("\n".join(map(str, range(100)))), HERE).splitlines()
    assert len(lines) == 13
    assert lines[-1].strip() == "..."


def test_full_disk_is_found(tmp_path):
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    for name in ("small", "files", "large"):
        (tmp_path / name).mkdir()
    script = f"""
        mount -t tmpfs -o size=300k tmpfs small
        mount -t tmpfs -o size=8m,nr_inodes=1 tmpfs files
        mount -t tmpfs -o size=8m tmpfs large
        {sys.executable} -c 'from {explain.__module__} import find_full_disk
for name in ("small", "files", "large", "/proc", "missing"):
    print(find_full_disk([name]))'
    """
    done = subprocess.run(
        [*namespace, "bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    small, files, *others = done.stdout.splitlines()
    assert small == "no space is left in small (300 KiB); free some, then run the same command again"
    assert files == "no more files can be created in files; remove some, then run the same command again"
    assert others == ["", "", ""]


def test_this_machine_has_room(tmp_path):
    assert find_full_disk([tmp_path]) == ""
