"""Finds fields of a manifest that a cluster does not know, and so has dropped."""

from collections.abc import Mapping
from typing import Any


def find_dropped(sent: Any, stored: Any, path: str) -> list[str]:
    """Returns the names of fields that were sent and are not there any more.

    Args:
      sent: A part of a manifest that was sent.
      stored: The same part as the cluster has stored it.
      path: Name of the part.
    """
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        missing = [f"{path}.{key}" for key in sent if key not in stored]
        return missing + [
            field for key in sent if key in stored for field in find_dropped(sent[key], stored[key], f"{path}.{key}")
        ]
    # Where lengths differ, a webhook of the cluster has added items.
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [
            field
            for position, (one, other) in enumerate(zip(sent, stored, strict=True))
            for field in find_dropped(one, other, f"{path}[{position}]")
        ]
    return []
