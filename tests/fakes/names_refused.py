"""Refuses to look up names but this machine's, and writes down which were asked for. Imported as `sitecustomize`."""

import os
import socket
from typing import Any

_OWN = ("localhost", "127.0.0.1", "::1", "", None)
_look_up = socket.getaddrinfo


def _write(name: object) -> None:
    with open(os.environ["NAMES_FILE"], "a") as file:
        file.write(f"{name}\n")


def _getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    if host in _OWN:
        return _look_up(host, *arguments, **options)
    _write(host)
    raise socket.gaierror(socket.EAI_NONAME, f"{host} was looked up")


def _refuse(host: Any, *arguments: Any) -> Any:
    _write(host)
    raise socket.gaierror(socket.EAI_NONAME, f"{host} was looked up")


socket.getaddrinfo = _getaddrinfo
for _name in ("gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
    setattr(socket, _name, _refuse)
