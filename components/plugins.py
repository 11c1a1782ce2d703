"""Finds launchers, those of other packages by their entry points."""

import functools
from collections.abc import Mapping
from importlib import metadata


def find(group: str, own: Mapping[str, str]) -> dict[str, metadata.EntryPoint]:
    """Returns the entry points of a group by name.

    `own` is name -> "module:class" of this package's; those of other packages cannot
    replace them.
    """
    return {
        **{name: metadata.EntryPoint(name, value, group) for name, value in own.items()},
        **{point.name: point for point in _installed(group) if point.name not in own},
    }


@functools.cache
def _installed(group: str) -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))
