"""Finds out who could connect to a server of this process.

Training processes load a library that reserves their servers for their owner
(`components/launchers/local/_loopback.c`). If it cannot be loaded, the dynamic linker
only prints a line and continues, so each process checks for itself.
"""

import enum
import socket

_SECONDS = 5.0


class Exposure(enum.Enum):
    """Those who can connect to a TCP server that listens on every interface."""

    OWNER = "owner"
    """Processes of this user on this machine."""
    MACHINE = "machine"
    """Any user of this machine."""
    NETWORK = "network"
    """Anyone who can reach this machine."""
    NONE = "none"
    """Not even this process."""


def find() -> Exposure:
    """Finds out who can connect to a server of this process, by starting one briefly.

    This process cannot connect as another user. But once a connection is closed at the
    other end, the kernel no longer knows its owner, so a server that checks owners
    rejects it: the probe is accepted only if the server does not check.
    """
    with socket.socket() as server:
        server.settimeout(_SECONDS)
        server.bind(("", 0))
        if server.getsockname()[0] == "0.0.0.0":  # noqa: S104 (never listens on it)
            return Exposure.NETWORK
        server.listen()
        try:
            with socket.create_connection(server.getsockname(), _SECONDS) as closed:
                closed_name = closed.getsockname()
        except OSError:  # even the loopback device is down
            return Exposure.NONE
        with socket.create_connection(server.getsockname(), _SECONDS):
            try:
                accepted, name = server.accept()
            except TimeoutError:
                return Exposure.NONE
            accepted.close()
    return Exposure.MACHINE if name == closed_name else Exposure.OWNER
