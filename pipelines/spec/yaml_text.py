"""Parses YAML into plain values and records the line of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tfx_distribute.components.spec_model import Scalar
from tfx_distribute.pipelines.spec.files import shorten

Location = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null")}
_REPLACED = {_TAG + name for name in ("timestamp", "value", "int", "float")}
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # characters that paths and protocol buffers cannot hold


class TextError(ValueError):
    """A text is not YAML, or holds something that a pipeline file may not have.

    `line` is the line of the mistake, counted from 1.
    """

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass
class Document:
    """A parsed text.

    Attributes:
      value: Mappings with string keys, lists, strings, numbers, booleans and None.
      lines: The line of each location, counted from 1: the line of the key, or of the
        list item.
    """

    value: Any = None
    lines: dict[Location, int] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """The safe loader without YAML 1.1's dates, octal numbers and numbers of base 60.

    `1e-3` is a number; `2024-01-31`, `12:30` and `0123` are strings.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, _pattern in (
    ("int", r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"),
    ("float", r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"),
    ("float", r"[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), list("-+.0123456789"))


def parse(text: str) -> Document:
    r"""Parses a text that holds one YAML document.

    ```python
    parse("a:\n  b: [1]").lines  # {(): 1, ("a",): 1, ("a", "b"): 2, ("a", "b", 0): 2}
    ```

    Raises:
      TextError: The text is not YAML, has values that JSON lacks, has a duplicate key
        or a key that is not a string, or is too deeply nested.
    """
    document = Document()
    try:
        loader, node = _compose(text)
        if node is not None:
            document.lines[()] = _get_line(node)
            document.value = _Converter(loader, document.lines).convert(node, ())
    except RecursionError as error:
        raise TextError(1, "is nested too deeply, or refers to itself") from error
    return document


def parse_scalar(text: str) -> Scalar:
    """Parses a single YAML value: a number, true or false, or text.

    Anything in quotes is text, and so is a mapping. Text that YAML would cut at a
    comment or a line break is kept whole.

    ```python
    parse_scalar("1e3")  # 1000.0
    parse_scalar("'1e3'")  # "1e3"
    parse_scalar("a #b")  # "a #b"
    ```

    Raises:
      ValueError: The value is null or a list, or is not valid Unicode.
    """
    if _NOT_TEXT.search(text):
        raise ValueError("is not valid text in the encoding of the terminal")
    if not text or "\n" in text or "\r" in text:
        return text
    try:
        loader, node = _compose(text)
    except (TextError, RecursionError):
        return text
    if node is None or text[node.start_mark.index : node.end_mark.index] != text.strip():
        return text
    if isinstance(node, yaml.MappingNode):  # such as `1: 2.5`, weights of classes
        return text
    value = _Converter(loader, {}).convert(node, ())
    if not isinstance(value, Scalar):
        raise ValueError("write -p name=value, with a number, true, false or text; text such as [1] goes in quotes")
    return value


def _compose(text: str) -> tuple[_Loader, yaml.Node | None]:
    loader = None
    try:
        loader = _Loader(text)
        return loader, loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TextError(line, f"not valid YAML: the character {chr(error.character)!a} is not allowed") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(filter(None, (error.context, error.problem)))
        raise TextError(mark.line + 1 if mark else 1, f"not valid YAML: {message}") from error
    except (ValueError, OverflowError) as error:  # from an escape that is not a character, such as \UFFFFFFFF
        if isinstance(error, TextError):
            raise
        line = loader.line + 1 if loader else 1
        raise TextError(line, f"not valid YAML: {error}") from error


class _Converter:
    """Converts nodes to values and records their lines."""

    def __init__(self, loader: _Loader, lines: dict[Location, int]):
        self._loader = loader
        self._lines = lines

    def convert(self, node: yaml.Node, location: Location) -> Any:
        """Returns the value of a node at a location, or raises a TextError."""
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            entries = self._collect_entries(node)
            return {name: self._convert_item(name, key, value, location) for name, (key, value) in entries.items()}
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._convert_item(index, value, value, location) for index, value in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALAR_TAGS:
            return self._convert_scalar(node)
        tag = node.tag.replace(_TAG, "!!")
        raise TextError(_get_line(node), f"not valid YAML: the tag {shorten(tag)} is not allowed; leave it out")

    def _convert_item(self, key: str | int, line_node: yaml.Node, value: yaml.Node, location: Location) -> Any:
        item_location = (*location, key)
        self._lines[item_location] = _get_line(line_node)
        return self.convert(value, item_location)

    def _collect_entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Returns a mapping's keys, each with its node and the node of its value.

        Entries that `<<` merges in come first.
        """
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                for source in reversed(list(_iterate_merged(value))):
                    merged.update(self._collect_entries(source))
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise TextError(_get_line(key), "a key is a list or a mapping; keys are strings")
            if key.tag != _TAG + "str":
                raise TextError(_get_line(key), f"the key {shorten(key.value)} is not a string; write it in quotes")
            name = self._convert_scalar(key)
            if name in entries:
                raise TextError(_get_line(key), f"{shorten(name)!r} is also on line {_get_line(entries[name][0])}")
            entries[name] = (key, value)
        return {**merged, **entries}

    def _convert_scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            type_name = node.tag.replace(_TAG, "")
            message = f"{shorten(node.value)!r} is not a valid {type_name}; text goes in quotes"
            raise TextError(_get_line(node), message) from error
        if isinstance(value, str) and _NOT_TEXT.search(value):
            raise TextError(_get_line(node), f"{shorten(ascii(value))} holds a character that is not allowed")
        return value


def _iterate_merged(node: yaml.Node) -> Iterator[yaml.MappingNode]:
    """Yields the mappings that a `<<` key names: one, or a list of them."""
    for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(source, yaml.MappingNode):
            raise TextError(_get_line(source), "<<: merges mappings only")
        yield source


def _get_line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
