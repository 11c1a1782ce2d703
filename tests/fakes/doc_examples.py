"""Reads the examples in documents."""

import re
from pathlib import Path

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def python_blocks(document: Path) -> list[str]:
    """Returns the blocks of Python in a Markdown file, each with its last newline."""
    return _PYTHON.findall(document.read_text(encoding="utf-8"))
