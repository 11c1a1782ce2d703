"""A YAML file -> a `PipelineSpec`; what is wrong with it -> one message with the line, the value and what is allowed."""

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tfx_distribute.pipelines.models import Scalar
from tfx_distribute.pipelines.spec import BASE_DIR, Parameters, PipelineSpec, Shards
from tfx_distribute.trainer_module.errors import ConfigurationError

Location = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """The safe loader, nothing in the file is evaluated; and `1e-3` is a number, as in YAML 1.2, not a string."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def load(path: str | Path) -> PipelineSpec:
    """Reads a pipeline file.

    Raises:
      ConfigurationError: It is not there, is not YAML, or does not describe a pipeline; one line for each mistake.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=_Loader)
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not a text file ({error})") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not valid YAML: {error}") from error
    lines = dict(_lines(root, (), path)) if root is not None else {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a pipeline is a mapping with the keys {', '.join(PipelineSpec.model_fields)}")
    try:
        return PipelineSpec.model_validate(document, context={BASE_DIR: path.resolve().parent})
    except ValidationError as error:
        problems = [
            f"{path}, line {_line_of(location, lines)}: {message}"
            for location, message in explain(error, PipelineSpec, document)
        ]
        raise ConfigurationError("\n".join(problems)) from error


def parse_parameters(given: Iterable[str]) -> dict[str, Scalar]:
    """Reads `name=value` words, the values as YAML reads them.

    Raises:
      ConfigurationError: A word is not of that form, or its value is a list or a mapping.
    """
    parameters: dict[str, Scalar] = {}
    for word in given:
        name, separator, text = word.partition("=")
        try:
            value = yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
        except yaml.YAMLError:
            value = text
        if not (name and separator) or not isinstance(value, Scalar):
            raise ConfigurationError(f"-p {word}: write -p name=value")
        parameters[name] = value
    return parameters


def override(spec: PipelineSpec, given: Mapping[str, Scalar]) -> PipelineSpec:
    """`spec.with_parameters`, with messages that speak of `-p`.

    Raises:
      ConfigurationError: A value is wrong, or a name is neither a parameter nor a hyperparameter.
    """
    for hparam in set(given) & set(spec.trainer.hparams):
        value, default = given[hparam], spec.trainer.hparams[hparam]
        if type(value) is not type(default) and not (type(default) is float and type(value) is int):
            kind = type(default).__name__
            raise ConfigurationError(f"-p {hparam}={value}: {hparam} is {default!r} in the pipeline file; write a {kind}")
    try:
        return spec.with_parameters(dict(given))
    except ValidationError as error:
        problems = []
        for location, message in explain(error, Parameters, dict(given), also=(*Shards.PARAMETERS, *spec.trainer.hparams)):
            name = location[0] if location else ""
            word = f"-p {name}={given[str(name)]}" if name in given else f"with {_words(given)}"
            problems.append(f"{word}: {message}")
        raise ConfigurationError("\n".join(problems)) from error


def with_target(spec: PipelineSpec, name: str, given: Mapping[str, str | None]) -> PipelineSpec:
    """The same pipeline with other settings of a target.

    Args:
      spec: The pipeline.
      name: The target: `kubeflow` or `vertex`.
      given: Setting -> value, options of a command; None for what the pipeline file says.

    Raises:
      ConfigurationError: A value is wrong.
    """
    target = getattr(spec.targets, name)
    changed = {setting: value for setting, value in given.items() if value is not None}
    if target is None or not changed:
        return spec
    try:
        other = type(target).model_validate({**target.model_dump(), **changed})
    except ValidationError as error:
        problems = [
            f"--{text.replace(str(at[0]), str(at[0]).replace('_', '-'), 1)}"
            for at, text in explain(error, type(target), changed)
        ]
        raise ConfigurationError("\n".join(problems)) from error
    return spec.model_copy(update={"targets": spec.targets.model_copy(update={name: other})})


def explain(
    error: ValidationError, model: type[BaseModel], document: Any, also: tuple[str, ...] = ()
) -> list[tuple[Location, str]]:
    """Where each mistake is, and a message that names the key, what is wrong with its value and what is allowed.

    Args:
      error: What pydantic found.
      model: The model that was validated.
      document: What was validated.
      also: Keys that are allowed at the top beside the model's own.
    """
    found = []
    for problem in error.errors():
        location = tuple(part for part in problem["loc"])
        kind, message, value = problem["type"], problem["msg"], problem["input"]
        key = ".".join(map(str, location))
        if kind == "extra_forbidden":
            allowed = [*_fields_at(model, location[:-1]), *(also if len(location) == 1 else ())]
            close = difflib.get_close_matches(str(location[-1]), allowed, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            found.append((location, f"unknown key {key!r}; {hint}allowed: {', '.join(allowed)}"))
        elif kind == "missing":
            found.append((location, f"{key}: is missing"))
        elif kind == "value_error":
            text = message.removeprefix("Value error, ")
            # A contradiction between keys of one mapping is put at the key that the message begins with.
            name = text.partition(":")[0]
            if name in _fields_at(model, location):
                location = (*location, name)
                text = f"{'.'.join(map(str, location))}:{text.partition(':')[2]}"
            elif key:
                text = f"{key}: {text}"
            found.append((location, text))
        else:
            found.append((location, f"{key}: {value!r} is not allowed: {message[0].lower()}{message[1:]}"))
    return found


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """Names of the keys that are allowed at a place of the document; none where it is no mapping of ours."""
    annotation: Any = model
    for part in location:
        inside = _model_in(annotation)
        if inside is None:
            # A key of a mapping, or an index: what it leads to is the annotation's last argument.
            annotation = (typing.get_args(_without_none(annotation)) or (None,))[-1]
        else:
            annotation = inside.model_fields[part].annotation if part in inside.model_fields else None
    inside = _model_in(annotation)
    return list(inside.model_fields) if inside else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `Model` or `Model | None` stands for."""
    plain = _without_none(annotation)
    return plain if isinstance(plain, type) and not typing.get_args(plain) and issubclass(plain, BaseModel) else None


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(annotation) if part is not type(None))
    return annotation


def _lines(node: yaml.Node, location: Location, path: Path) -> Iterable[tuple[Location, int]]:
    """The line of each place of the document, from 1.

    Raises:
      ConfigurationError: A mapping has a key twice; YAML would quietly take the last.
    """
    yield location, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: dict[Any, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise ConfigurationError(f"{path}, line {line}: {key.value!r} is also on line {seen[key.value]}")
            seen[key.value] = line
            yield from _lines(value, (*location, key.value), path)
            yield (*location, key.value), line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*location, index), path)


def _line_of(location: Location, lines: Mapping[Location, int]) -> int:
    """The line of a place, or of what it would be in."""
    while location and location not in lines:
        location = location[:-1]
    return lines.get(location, 1)


def _words(given: Mapping[str, Scalar]) -> str:
    return " ".join(f"-p {name}={value}" for name, value in given.items())
