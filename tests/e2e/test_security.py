"""Tests that no other user reaches a run with two Beam and two training processes.

The run has its own network namespace.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_project import LINE, LINEAR_MODEL, PIPELINE, WAITS, write_project
from strangers import NOBODY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root, for a network of its own and to act as another user"),
]

SECRET = "the owner's alone"  # noqa: S105
MODULES = Path(__file__).parents[1] / "fakes"
# As the kernel writes them: 127.0.0.1, the same mapped to IPv6, and ::1.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
NETWORK = "ip link set lo up && ip addr add 10.77.0.1/32 dev lo && exec "
LISTEN = "0A"


@dataclass
class Observed:
    """A finished run, and observations made while it ran.

    Attributes:
      listening: Addresses that processes in its network listened on.
      datagrams: Addresses of UDP sockets.
      visits: User and request -> the answers.
      readable: Path that the run wrote -> whether another user can read it.
    """

    root: Path
    code: int = -1
    output: str = ""
    listening: set[str] = field(default_factory=set)
    datagrams: set[str] = field(default_factory=set)
    visits: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    readable: dict[str, bool] = field(default_factory=dict)


class Visitor:
    """Starts a program in the run's network that sends requests to its servers.

    It runs as this user or another one.
    """

    def __init__(self, network_of: int, observed: Observed):
        self._visits = observed.visits
        words = ["nsenter", f"--net=/proc/{network_of}/ns/net", sys.executable, str(MODULES / "visitor.py")]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, user: str, what: str, *arguments: object) -> str:
        request = {"user": NOBODY if user == "stranger" else os.geteuid(), "what": what, "arguments": arguments}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def visit(self, what: str, *arguments: object, users: tuple[str, ...] = ("stranger", "owner")) -> None:
        for user in users:
            self._visits.setdefault((user, what), []).append(self.ask(user, what, *arguments))

    def wait_ready(self) -> None:
        assert self._process.stdout.readline() == "ready\n"

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


def addresses(pid: int, protocol: str, state: str | None = None) -> set[str]:
    rows = [
        line.split()
        for version in ("", "6")
        for line in Path(f"/proc/{pid}/net/{protocol}{version}").read_text().splitlines()[1:]
    ]
    return {row[1] for row in rows if state in (None, row[3])}


@pytest.fixture
def observed() -> Iterator[Observed]:
    # Not in pytest's folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="security-", dir="/tmp"))
    folder.chmod(0o755)
    observed = Observed(folder / "run")
    file = write_project(folder, PIPELINE + "push: {}\nbeam: {direct_num_workers: 2}\n", LINEAR_MODEL + WAITS, LINE)
    secret, temporary = folder / "secret", folder / "tmp"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    temporary.mkdir()
    values = ("strategy=multi_worker_mirrored", "num_workers=2", "epochs=10", "accelerator_type=cpu")
    words = ["-m", "tfx_distribute.pipelines", "run", file, "--root", observed.root]
    words += [word for value in values for word in ("-p", value)]
    command = " ".join(map(str, [sys.executable, *words]))
    with (folder / "output").open("w") as output:
        run = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", NETWORK + command],  # noqa: S607
            env={**os.environ, "TMPDIR": str(temporary), "WAITS": "0.5"},  # so that there is time for visits
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=0o022,
        )
    deadline = time.monotonic() + 500
    while Path(f"/proc/{run.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        time.sleep(0.01)
    visitor = Visitor(run.pid, observed)
    try:
        visitor.wait_ready()
        seen: set[str] = set()
        while run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            try:
                listening = addresses(run.pid, "tcp", LISTEN)
                observed.datagrams |= addresses(run.pid, "udp")
                beam = set(re.findall(r"/\S+/beam-\w+/socket$", Path(f"/proc/{run.pid}/net/unix").read_text(), re.MULTILINE))
            except OSError:
                break  # it has ended in the meantime
            observed.listening |= listening
            for socket in beam - seen:
                seen.add(socket)
                visitor.visit("beam", f"unix:{socket}", str(secret))
            ports = [int(address.partition(":")[2], 16) for address in listening - seen]
            seen |= listening
            for port in ports:
                visitor.visit("tcp", port)
            for port in ports:
                visitor.visit("beam", f"127.0.0.1:{port}", str(secret), users=("stranger",))
                visitor.visit("tensorflow", port, str(secret), users=("stranger",))
        observed.code = run.wait(max(1.0, deadline - time.monotonic()))
        observed.output = (folder / "output").read_text()
        for path in (path for path in observed.root.rglob("*") if path.is_file()):
            answer = visitor.ask("stranger", "read", str(path))
            observed.readable[str(path.relative_to(observed.root))] = answer != "PermissionError"
        yield observed
    finally:
        run.kill()
        run.wait()
        visitor.close()
        shutil.rmtree(folder)


def test_no_other_user_reaches_a_run(observed):
    """One test, since parallel test processes would each run the pipeline."""
    check_the_run_is_one_that_was_looked_at(observed)
    check_nothing_listens_beyond_loopback(observed)
    check_no_other_user_is_let_in(observed)
    check_only_the_pushed_model_is_for_others_to_read(observed)


def check_the_run_is_one_that_was_looked_at(observed: Observed) -> None:
    assert observed.code == 0, observed.output
    assert ("stranger", "beam") in observed.visits
    assert ("stranger", "tcp") in observed.visits


def check_nothing_listens_beyond_loopback(observed: Observed) -> None:
    hosts = {address.partition(":")[0] for address in observed.listening}
    assert hosts
    assert hosts <= LOOPBACK
    assert not observed.datagrams


def check_no_other_user_is_let_in(observed: Observed) -> None:
    # A server that ends between two checks refuses everyone.
    assert set(observed.visits["stranger", "tcp"]) <= {"closed", "ConnectionRefusedError"}
    assert SECRET not in str(observed.visits)
    # Both workers answer the run's owner; Beam answers that it has no files to serve.
    pairs = zip(observed.visits["stranger", "tcp"], observed.visits["owner", "tcp"], strict=True)
    assert sum(stranger == "closed" and owner.startswith("0000") for stranger, owner in pairs) >= 2
    assert set(observed.visits["owner", "beam"]) == {"UNIMPLEMENTED"}


def check_only_the_pushed_model_is_for_others_to_read(observed: Observed) -> None:
    readable = {path for path, is_readable in observed.readable.items() if is_readable}
    assert readable == {path for path in observed.readable if path.startswith("serving/")}
    assert {Path(path).name for path in readable} >= {"saved_model.pb", "variables.index"}
    assert {path.partition("/")[0] for path in observed.readable} == {"artifacts", "logs", "metadata.sqlite", "serving"}
