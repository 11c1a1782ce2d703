"""Tests the library that keeps other users out, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfx_distribute.components.launchers.local import loopback
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.liveness.exposure import Exposure

MODULES = Path(__file__).parents[3] / "fakes"
FIND = "from tfx_distribute.trainer_module.liveness import exposure; print(exposure.find().value)"
WELCOME = b"welcome".hex()

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def output_of(*command: str, environment: dict[str, str] | None = None) -> str:
    environment = loopback.environment({}) if environment is None else environment
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def guarded(case: str) -> object:
    """Runs a case of the fake `guarded.py` with the library."""
    return json.loads(output_of(sys.executable, str(MODULES / "guarded.py"), case))


def test_servers_are_on_loopback_and_let_their_owner_in():
    servers = guarded("users")
    assert {server["owner"] for server in servers.values()} == {WELCOME}
    listens = {name: server["listens"] for name, server in servers.items()}
    v4, mapped = "127.0.0.1", "::ffff:127.0.0.1"
    assert listens == {
        "any IPv4": v4,
        "IPv4": v4,
        "any, both versions": mapped,
        "any, both versions, by IPv6": mapped,
        "any IPv4, mapped": mapped,
        "IPv6": "::1",
        "never bound": v4,
    }


@as_root
def test_another_user_is_refused_before_anything_is_read_or_written():
    assert {server["stranger"] for server in guarded("users").values()} == {"closed"}


def test_a_nonblocking_server_does_not_see_another_user():
    assert guarded("waiting") == "nobody"


@as_root
def test_a_client_of_another_network_with_a_port_of_ours():
    done = output_of("unshare", "--net", sys.executable, str(MODULES / "guarded.py"), "network")
    assert json.loads(done) == {"remote": "closed", "owner": WELCOME}


@as_root
def test_the_id_of_all_unknown_users_is_refused():
    assert guarded("namespace") == ["owner", "none"]


def test_programs_that_a_guarded_process_starts_are_guarded_too():
    assert guarded("children") == "127.0.0.1"


def test_a_process_finds_who_can_connect(tmp_path):
    assert output_of(sys.executable, "-c", FIND) == "owner"
    assert output_of(sys.executable, "-c", FIND, environment={}) == "network"
    broken = tmp_path / "library.so"
    broken.write_bytes(b"not a library")
    assert output_of(sys.executable, "-c", FIND, environment={"LD_PRELOAD": str(broken)}) == "network"


def test_libraries_that_are_preloaded_already_stay():
    (ours,) = loopback.environment({}).values()
    assert loopback.environment({"LD_PRELOAD": "/lib/theirs.so"}) == {"LD_PRELOAD": f"{ours}:/lib/theirs.so"}


@pytest.mark.parametrize("library", [None, Path("/with space/x.so"), Path("/with:colon/x.so")])
def test_a_library_that_cannot_be_loaded(library, monkeypatch):
    monkeypatch.setattr(loopback, "_LIBRARY", library)
    assert loopback.environment({}) == {}


@as_root
def test_without_a_network_nobody_can_connect():
    assert output_of("unshare", "--net", sys.executable, "-c", FIND) == Exposure.NONE.value


def test_description_of_each_exposure():
    assert loopback.describe(Exposure.OWNER) == ""
    message = loopback.describe(Exposure.NETWORK)
    assert message.startswith("WARNING: Anyone who can reach this machine over the network can take over this training")
    assert loopback.describe(Exposure.MACHINE).startswith("WARNING: Every user of this machine can take over")
    with pytest.raises(ConfigurationError, match="cannot connect to each other"):
        loopback.describe(Exposure.NONE)
