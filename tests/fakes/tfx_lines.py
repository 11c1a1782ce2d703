"""Names the supported lines of TFX, and the installed one."""

import importlib.metadata

LINES = ("1.16", "1.21")


def installed() -> str:
    """Returns the line of the installed TFX."""
    return ".".join(importlib.metadata.version("tfx").split(".")[:2])
