"""Sends a message to the addresses in an environment variable, with apprise."""

import logging
import os
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from tfx_distribute.pipelines.notify.message import Message

_MAX_REASON = 200  # characters
_MIN_SECRET = 4  # characters; a shorter part of an address is not looked for
# Its lines have parts of addresses, which neither the terminal nor the log may show.
_LOGGER = logging.getLogger("apprise")
_LOGGER.propagate = False
_LOGGER.addHandler(logging.NullHandler())


def read_addresses(variable: str) -> list[str]:
    """Returns the addresses in an environment variable; empty if it is not set."""
    return os.environ.get(variable, "").split()


def describe_missing(variable: str) -> str:
    """Returns a warning if an environment variable has no address; empty if it has."""
    if read_addresses(variable):
        return ""
    return f"notify.urls: the environment variable {variable} is not set, so no notification is sent"


def send(message: Message, addresses: Sequence[str]) -> list[str]:
    """Sends a message to addresses of apprise; returns a line for each that failed.

    The lines have no secrets. It waits four seconds for a connection and for an answer,
    unless the address says otherwise.
    """
    return [failure for address in addresses if (failure := _send_one(message, address))]


def describe_address(address: str) -> str:
    """Returns the scheme of an address, and its host where that is not a token."""
    scheme, separator, _ = address.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z0-9]{1,20}", scheme):
        return "an address without a scheme"
    service = _parse(address)
    try:
        host = urlsplit(str(service.url(privacy=True))).hostname if service else ""
    except ValueError:
        host = ""
    is_host = host and "..." not in host and ("." in host or ":" in host or host == "localhost")
    return f"{scheme}://{host}" if is_host else scheme


def _send_one(message: Message, address: str) -> str:
    """Sends a message to one address; returns why that failed, or nothing."""
    import apprise

    shown = describe_address(address)
    try:
        service = _parse(address)
        if service is None:
            return f"{shown}: apprise cannot use this address"
        # Not Apprise.notify, which starts threads that Python waits for before it ends.
        service.notify_format = apprise.NotifyFormat.TEXT
        kind = apprise.NotifyType.SUCCESS if message.is_good else apprise.NotifyType.FAILURE
        with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
            if service.notify(title=message.title, body=message.body, notify_type=kind, body_format=service.notify_format):
                return ""
    except Exception as error:  # of a service's plugin
        return f"{shown}: {type(error).__name__}"
    reason = _hide_parts("".join(log.getvalue().splitlines()[-1:]), address, shown)
    return f"{shown}: {reason[:_MAX_REASON] or 'it was not taken'}"


def _hide_parts(reason: str, address: str, shown: str) -> str:
    """Replaces what a reason has of an address beyond its scheme and host."""
    for part in sorted(set(re.split(r"[^\w.-]+", unquote(address))), key=len, reverse=True):
        if len(part) >= _MIN_SECRET and part.lower() not in re.split("://", shown.lower()):
            reason = re.sub(re.escape(part), "****", reason, flags=re.IGNORECASE)
    return " ".join(reason.split())


def _parse(address: str):  # type: ignore[no-untyped-def]
    """Returns apprise's service of an address; None if it does not know it."""
    import apprise

    asset = apprise.AppriseAsset(app_id="tfx-distribute", app_desc="tfx-distribute", app_url="")
    return apprise.Apprise.instantiate(address, asset=asset)
