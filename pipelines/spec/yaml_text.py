"""Parses YAML into plain values and records the line of each."""

import re
from typing import Any

import yaml

from tfx_distribute.components.spec_model import Scalar

Location = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"  # of the key `<<`
_REPLACED = {_TAG + name for name in ("timestamp", "value", "int", "float")}


class TextError(Exception):
    """A text is not YAML, or holds something that a pipeline file may not have.

    `line` is the line of the mistake, counted from 1.
    """

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


class _Loader(yaml.SafeLoader):
    """The safe loader without YAML 1.1's dates, octal numbers and numbers of base 60.

    `1e-3` is a number; `2024-01-31`, `12:30` and `0123` are strings.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, _pattern in (
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0b[01][01_]*)$"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"),
    ("float", r"[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), list("-+.0123456789"))


def parse(text: str) -> tuple[Any, dict[Location, int]]:
    """Parses a text that holds one YAML document, or raises a `TextError`.

    Returns its value, and the line of each location, counted from 1: that of the key,
    or of the list item.
    """
    return _load(text)[1:]


def parse_scalar(text: str) -> Scalar:
    """Parses a single YAML value: a number, true or false; anything else is text.

    Text that YAML would cut at a comment or a line break is kept whole: `a #b`.
    """
    if "\n" in text:
        return text
    try:
        node, value, _ = _load(text)
    except TextError:
        return text
    is_whole = node is not None and text[node.start_mark.index : node.end_mark.index] == text.strip()
    return value if is_whole and isinstance(value, Scalar) else text


def _load(text: str) -> tuple[yaml.Node | None, Any, dict[Location, int]]:
    """Returns the node of a text, its value and lines; None for an empty text."""
    lines: dict[Location, int] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, None, lines
        lines[()] = _get_line(node)
        _record_lines(node, (), lines)
        return node, loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(filter(None, (error.context, error.problem)))
        raise TextError(mark.line + 1 if mark else 1, f"not valid YAML: {message}") from error
    except yaml.reader.ReaderError as error:
        raise TextError(text.count("\n", 0, error.position) + 1, f"not valid YAML: {str(error).splitlines()[0]}") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise TextError(1, f"not valid YAML: {error}") from error


def _record_lines(node: yaml.Node, location: Location, lines: dict[Location, int]) -> None:
    """Records the line of each key and item; refuses what PyYAML would let pass.

    What `<<` merges in has the line of the mapping that it becomes a part of.
    """
    items: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.SequenceNode):
        items = [(index, value, value) for index, value in enumerate(node.value)]
    elif isinstance(node, yaml.MappingNode):
        items = [(key.value, key, value) for key, value in node.value if key.tag != _MERGE]
    for name, key, value in items:
        item_location = (*location, name)
        if key is not value and key.tag != _TAG + "str":
            raise TextError(_get_line(key), "a key is not a string; write it in quotes")
        if item_location in lines:
            raise TextError(_get_line(key), f"{name!r} is also on line {lines[item_location]}")
        lines[item_location] = _get_line(key)
        _record_lines(value, item_location, lines)


def _get_line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
