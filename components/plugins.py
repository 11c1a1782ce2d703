"""Finds launchers, those of other packages by their entry points."""

import functools
from collections.abc import Mapping
from importlib import metadata


def find(group: str, own: Mapping[str, str]) -> dict[str, metadata.EntryPoint]:
    """Returns what this package and others have; no other replaces one of `own`.

    `own` is name -> "module:class" of those of this package.
    """
    return {
        **{name: metadata.EntryPoint(name, value, group) for name, value in own.items()},
        **{point.name: point for point in _installed(group) if point.name not in own},
    }


@functools.cache
def _installed(group: str) -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))
