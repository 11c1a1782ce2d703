"""Connects to guarded servers of this process in several ways, and prints the outcome.

    LD_PRELOAD=LIBRARY python guarded.py users | waiting | children | namespace |
    network

Clients are their owner, another user, and connections that are closed already.
"""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from strangers import NOBODY, as_user, connect

_CLONE_NEWUSER = 0x10000000
# How a server is bound -> how to reach it.
SERVERS = {
    "any IPv4": (socket.AF_INET, "0.0.0.0", (socket.AF_INET, "127.0.0.1")),  # noqa: S104
    "IPv4": (socket.AF_INET, "127.0.0.1", (socket.AF_INET, "127.0.0.1")),
    "any, both versions": (socket.AF_INET6, "::", (socket.AF_INET, "127.0.0.1")),
    "any, both versions, by IPv6": (socket.AF_INET6, "::", (socket.AF_INET6, "::ffff:127.0.0.1")),
    "any IPv4, mapped": (socket.AF_INET6, "::ffff:0.0.0.0", (socket.AF_INET, "127.0.0.1")),
    "IPv6": (socket.AF_INET6, "::1", (socket.AF_INET6, "::1")),
    "never bound": (socket.AF_INET, None, (socket.AF_INET, "127.0.0.1")),
}


def serve(family: int, address: str | None) -> socket.socket:
    server = socket.socket(family)
    if address is not None:
        server.bind((address, 0))
    server.listen()
    return server


def accept_all(server: socket.socket) -> None:
    """Greets every client that is accepted, as a gRPC server does."""
    while True:
        connection, _ = server.accept()
        connection.sendall(b"welcome")
        connection.close()


def users() -> dict[str, Any]:
    """Returns how each kind of server answers its owner and another user."""
    answers = {}
    for name, (family, address, (client_family, host)) in SERVERS.items():
        server = serve(family, address)
        threading.Thread(target=accept_all, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        answers[name] = {
            "listens": server.getsockname()[0],
            "stranger": as_user(NOBODY, connect, client_family, host, port) if os.geteuid() == 0 else None,
            "owner": connect(client_family, host, port),
        }
    return answers


def waiting() -> str:
    """Returns what a nonblocking server accepts after a connection was closed."""
    with serve(socket.AF_INET, "127.0.0.1") as server:
        server.setblocking(False)
        socket.create_connection(server.getsockname()).close()
        try:
            server.accept()
        except BlockingIOError:
            return "nobody"
        return "accepted"


def network() -> dict[str, str]:
    """Connects from another network, from the number of a port that is used here.

    This user listens on that port here, and the kernel finds the listening socket.
    """

    def ip(*arguments: str, inside: tuple[str, ...] = ()) -> None:
        subprocess.run([*inside, "ip", *arguments], check=True)

    def start(*words: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
        running.callback(process.wait)
        running.callback(process.kill)
        assert process.stdout
        return process, process.stdout.readline().strip()

    with contextlib.ExitStack() as running:
        there, _ = start("unshare", "--net", "sh", "-c", "echo ready; exec sleep 60")
        inside = ("nsenter", f"--net=/proc/{there.pid}/ns/net")
        ip("link", "set", "lo", "up")
        ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(there.pid))
        ip("addr", "add", "10.0.0.1/24", "dev", "here")
        ip("link", "set", "here", "up")
        ip("addr", "add", "10.0.0.2/24", "dev", "there", inside=inside)
        ip("link", "set", "there", "up", inside=inside)
        # Without the library, so that it listens on every address.
        _, port = start(sys.executable, __file__, "listen", LD_PRELOAD="")
        server = running.enter_context(serve(socket.AF_INET, "10.0.0.1"))
        threading.Thread(target=accept_all, args=(server,), daemon=True).start()
        address = server.getsockname()
        _, answer = start(*inside, sys.executable, __file__, "connect", str(address[1]), port, LD_PRELOAD="")
        return {"remote": answer, "owner": connect(socket.AF_INET, *address)}


def listen() -> None:
    with serve(socket.AF_INET, "0.0.0.0") as server:  # noqa: S104
        print(server.getsockname()[1], flush=True)
        time.sleep(60)


def namespace() -> list[str]:
    """Returns who can connect as nobody, and as nobody of a user namespace.

    The namespace knows no other user.
    """
    from tfx_distribute.trainer_module.liveness import exposure

    def both() -> list[str]:
        first = exposure.find().value
        assert ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0
        return [first, exposure.find().value]

    return as_user(NOBODY, both)


def children() -> str:
    """Returns the address of a server in a program that this process starts."""
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[0])"
    return subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    "".encode("idna")  # another user may be unable to import it
    if sys.argv[1] == "listen":
        listen()
    elif sys.argv[1] == "connect":
        print(connect(socket.AF_INET, "10.0.0.1", int(sys.argv[2]), ("", int(sys.argv[3]))))
    else:
        cases = {"users": users, "waiting": waiting, "network": network, "namespace": namespace, "children": children}
        print(json.dumps(cases[sys.argv[1]]()))
