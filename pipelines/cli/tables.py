"""Formats and prints tables and documents."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as aligned columns; empty without rows."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def print_list(output: str, documents: Sequence[Any], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Prints a list as JSON, or as a table whose first row has the names."""
    if output == "json":
        click.echo(to_json(documents))
    elif documents:
        click.echo(format_table(rows))
    else:
        click.echo(nothing, err=True)


def format_value(value: Any) -> str:
    """Formats a value on one line; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split()) or "''"


def format_time(seconds: float | None) -> str:
    """Formats a Unix time in this machine's time zone; `-` for None."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def to_json(document: Any) -> str:
    """Formats a document as JSON; numbers that are not finite become strings."""
    return json.dumps(_finite(document), indent=2, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value
