"""A YAML file -> a `PipelineSpec`; what is wrong with it -> one message with the line, the value and what is allowed."""

import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tfx_distribute.pipelines.spec import files, yaml_text
from tfx_distribute.pipelines.spec.base import Scalar
from tfx_distribute.pipelines.spec.files import shorten
from tfx_distribute.pipelines.spec.pipeline import BASE_DIR, Parameters, PipelineSpec, Shards
from tfx_distribute.pipelines.spec.yaml_text import Location
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_BYTES = 128 * files.KIB


def load(path: str | Path) -> PipelineSpec:
    """Reads a pipeline file.

    Raises:
      ConfigurationError: It cannot be read, is larger than `MAX_BYTES`, is not YAML, or does not describe a pipeline; one
        line for each mistake.
    """
    try:
        folder = files.resolve(path).parent
        document = yaml_text.parse(files.read_text(path, MAX_BYTES))
    except yaml_text.TextError as error:
        raise ConfigurationError(f"{path}, line {error.line}: {error}") from error
    if not isinstance(document.value, dict):
        raise ConfigurationError(f"{path}: a pipeline is a mapping with the keys {', '.join(PipelineSpec.model_fields)}")
    try:
        return PipelineSpec.model_validate(document.value, context={BASE_DIR: folder})
    except ValidationError as error:
        problems = [
            f"{path}, line {_line_of(location, document.lines)}: {message}"
            for location, message in explain(error, PipelineSpec, document.value)
        ]
        raise ConfigurationError("\n".join(problems)) from error


def parse_parameters(given: Iterable[str]) -> dict[str, Scalar]:
    """Reads `name=value` words, the values as YAML reads them. The last value of a name counts.

    Raises:
      ConfigurationError: A word is not of that form, or its value is a list, a mapping or null.
    """
    parameters: dict[str, Scalar] = {}
    for word in given:
        name, separator, text = word.partition("=")
        if not (name and separator):
            raise ConfigurationError(f"{_word(word)}: write -p name=value")
        try:
            parameters[name] = yaml_text.parse_scalar(text)
        except ValueError as error:
            raise ConfigurationError(f"{_word(word)}: {error}") from error
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
            raise ConfigurationError(
                f"{_word(hparam, value)}: {hparam} is {shorten(repr(default))} in the pipeline file; write a {kind}"
            )
    try:
        return spec.with_parameters(dict(given))
    except ValidationError as error:
        problems = []
        for location, message in explain(error, Parameters, dict(given), also=(*Shards.PARAMETERS, *spec.trainer.hparams)):
            name = location[0] if location else ""
            word = _word(str(name), given[str(name)]) if name in given else f"with {_words(given)}"
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
            close = difflib.get_close_matches(str(location[-1])[:100], allowed, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            found.append((location, f"unknown key {shorten(key)!r}; {hint}allowed: {', '.join(allowed)}"))
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
            found.append((location, f"{key}: {shorten(repr(value))} is not allowed: {message[0].lower()}{message[1:]}"))
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


def _line_of(location: Location, lines: Mapping[Location, int]) -> int:
    """The line of a place, or of what it would be in."""
    while location and location not in lines:
        location = location[:-1]
    return lines.get(location, 1)


def _words(given: Mapping[str, Scalar]) -> str:
    return " ".join(_word(name, value) for name, value in given.items())


def _word(name: str, value: Scalar | None = None) -> str:
    """Returns an argument of the command line for a message, on one line and not too long."""
    text = shorten(name if value is None else f"{name}={value}")
    return f"-p {text if text.isprintable() else ascii(text)}"
