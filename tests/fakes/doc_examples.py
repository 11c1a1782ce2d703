"""Reads the examples in documents."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(document: Path, language: str = "") -> list[str]:
    """Returns the blocks of a language in a Markdown file, with their last newlines."""
    return [text for found, text in _BLOCK.findall(document.read_text(encoding="utf-8")) if found == language]


def python_blocks(document: Path) -> list[str]:
    return blocks(document, "python")
