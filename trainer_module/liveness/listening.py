"""Finds out whether other processes of the cluster listen yet."""

import socket
import time
from collections.abc import Iterable

PAUSE_SECONDS = 0.02


def listens(address: str, seconds: float = 5.0) -> bool:
    """Returns True if a process accepts a connection at HOST:PORT within `seconds`."""
    return find_obstacle(address, seconds) is None


def find_obstacle(address: str, seconds: float = 5.0) -> OSError | None:
    """Returns the error of connecting to HOST:PORT; None if a process listens there.

    It is mostly `TimeoutError` if the host does not answer.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=seconds):
            return None
    except OSError as error:
        return error


def wait_for(addresses: Iterable[str], seconds: float, pause_seconds: float = PAUSE_SECONDS) -> bool:
    """Waits until processes listen at all addresses; returns False if time is over.

    Do so before gRPC connects to a process that starts at the same time: it tries again
    only a second after its connection was refused, and then later each time.
    """
    deadline = time.monotonic() + seconds
    for address in addresses:
        while not listens(address):
            if time.monotonic() > deadline:
                return False
            time.sleep(pause_seconds)
    return True
