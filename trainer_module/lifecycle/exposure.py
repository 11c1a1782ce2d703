"""Finds out who could connect to a server of this process.

Training processes load a library that keeps their servers for their owner
(`components/launchers/local/_loopback.c`). Where it cannot be loaded, the dynamic linker only prints a line and goes
on, so each process checks for itself.
"""

import enum
import socket

_SECONDS = 5.0


class Exposure(enum.Enum):
    """Who can connect to a TCP server that listens on every interface."""

    OWNER = "owner"
    """Processes of this user on this machine."""
    MACHINE = "machine"
    """Any user of this machine."""
    NETWORK = "network"
    """Whoever reaches this machine."""
    NONE = "none"
    """Not even this process."""


def find() -> Exposure:
    """Returns who could connect to a server of this process, by starting one on loopback for a moment.

    Nobody but a stranger can connect as a stranger. But the kernel no longer knows the owner of a connection that was closed
    at the other end: only a server that tells owners apart turns it away.
    """
    with socket.socket() as server:
        server.settimeout(_SECONDS)
        server.bind(("", 0))
        if server.getsockname()[0] == "0.0.0.0":  # noqa: S104 (not listening yet, and not going to)
            return Exposure.NETWORK
        server.listen()
        with socket.create_connection(server.getsockname(), _SECONDS) as closed:
            closed_name = closed.getsockname()
        with socket.create_connection(server.getsockname(), _SECONDS):
            try:
                accepted, name = server.accept()
            except TimeoutError:
                return Exposure.NONE
            accepted.close()
    return Exposure.MACHINE if name == closed_name else Exposure.OWNER
