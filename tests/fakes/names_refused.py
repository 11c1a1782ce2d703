"""Refuses to resolve other hosts' names, and records the attempts.

Is imported as `sitecustomize`.
"""

import os
import socket
from typing import Any

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1", "", None)
_look_up = socket.getaddrinfo


def _record(name: object) -> None:
    with open(os.environ["NAMES_FILE"], "a") as file:
        file.write(f"{name}\n")


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    if host in _LOCAL_NAMES:
        return _look_up(host, *arguments, **options)
    _record(host)
    raise socket.gaierror(socket.EAI_NONAME, f"{host} was looked up")


def _refuse(host: Any, *arguments: Any) -> Any:
    _record(host)
    raise socket.gaierror(socket.EAI_NONAME, f"{host} was looked up")


socket.getaddrinfo = _getaddrinfo
for _name in ("gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
    setattr(socket, _name, _refuse)
