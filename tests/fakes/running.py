"""Inspects running processes, for tests."""

import contextlib
import os
import socket
import time
from pathlib import Path


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """Returns the running child processes of a process."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
            found += map(int, file.read_text().split())
    return [child for child in found if is_running(child)]


def training_processes(server_pid: int) -> dict[str, int]:
    """Returns the running training processes of a fork server.

    Process ids do not tell them apart: they start again from a small number after the
    largest that the kernel gives.

    Returns:
      Name of the task, such as `worker-0`, -> process id.
    """
    logs = {}
    for pid in children(server_pid):
        with contextlib.suppress(FileNotFoundError):  # it has ended in the meantime
            logs[Path(os.readlink(f"/proc/{pid}/fd/1")).stem] = pid
    return logs


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Returns unused ports of loopback."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        time.sleep(0.05)


def listening(pids: list[int]) -> list[str]:
    """Returns the addresses that processes listen on.

    In the kernel's notation: hexadecimal `address:port`.
    """
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    inodes.add(target[len("socket:[") : -1])
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
