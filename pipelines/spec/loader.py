"""Loads a YAML file as a `PipelineSpec` and explains each mistake in it.

A message has the line, the value and what is allowed instead.
"""

import difflib
import typing
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from tfx_distribute.components.spec_model import FROM_FILE, Scalar, fields_by_key
from tfx_distribute.pipelines.spec import files, yaml_text
from tfx_distribute.pipelines.spec.files import shorten
from tfx_distribute.pipelines.spec.pipeline import BASE_DIR, SECTION_PARAMETERS, Parameters, PipelineSpec
from tfx_distribute.pipelines.spec.yaml_text import Location
from tfx_distribute.trainer_module.errors import ConfigurationError


def load(path: str | Path) -> PipelineSpec:
    """Reads a pipeline file; a ConfigurationError has one line for each mistake."""
    try:
        folder = files.resolve(path).parent
        document, lines = yaml_text.parse(files.read_text(path))
    except yaml_text.TextError as error:
        raise ConfigurationError(f"{path}, line {error.line}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a pipeline is a mapping with the keys {', '.join(fields_by_key(PipelineSpec))}")
    try:
        return PipelineSpec.model_validate(document, context={BASE_DIR: folder, FROM_FILE: True})
    except ValidationError as error:
        problems = [
            f"{path}, line {lines[_select_known(location, lines)]}: {message}"
            for location, message in explain(error, PipelineSpec, lines)
        ]
        raise ConfigurationError("\n".join(problems)) from error


def parse_parameters(arguments: Iterable[str]) -> dict[str, Scalar]:
    """Parses `name=value` arguments, the values as YAML. A name's last value counts."""
    parameters: dict[str, Scalar] = {}
    for argument in arguments:
        name, separator, text = argument.partition("=")
        if not (name and separator):
            raise ConfigurationError(f"{_format_argument(argument)}: write -p name=value")
        parameters[name] = yaml_text.parse_scalar(text)
    return parameters


def override(spec: PipelineSpec, parameters: Mapping[str, Scalar]) -> PipelineSpec:
    """Calls `spec.with_parameters`, with error messages that name the option `-p`."""
    for hparam in set(parameters) & set(spec.trainer.hparams):
        value, default = parameters[hparam], spec.trainer.hparams[hparam]
        if type(value) is not type(default) and not (type(default) is float and type(value) is int):
            type_name = type(default).__name__
            raise ConfigurationError(
                f"{_format_argument(hparam, value)}: {hparam} is {shorten(repr(default))} in the pipeline file; "
                f"write a value of type {type_name}"
            )
    given = " ".join(_format_argument(name, value) for name, value in parameters.items())
    try:
        return spec.with_parameters(dict(parameters))
    except ValidationError as error:
        allowed = (*SECTION_PARAMETERS, "base_model", *spec.trainer.hparams)
        problems = []
        for location, message in explain(error, Parameters, {(key,) for key in parameters}, allowed):
            name = str(location[0]) if location else ""
            argument = _format_argument(name, parameters[name]) if name in parameters else f"with {given}"
            problems.append(f"{argument}: {message}")
        raise ConfigurationError("\n".join(problems)) from error
    except ValueError as error:  # parameters that do not go with other settings of the pipeline
        raise ConfigurationError(f"with {given}: {error}") from error


def with_target(spec: PipelineSpec, name: str, settings: Mapping[str, str | None]) -> PipelineSpec:
    """Returns a copy of the pipeline with some settings of a target replaced.

    A setting that is None keeps the pipeline file's value.
    """
    target = getattr(spec.targets, name)
    changes = {setting: value for setting, value in settings.items() if value is not None}
    if target is None or not changes:
        return spec
    try:
        changed_target = type(target).model_validate({**target.model_dump(), **changes})
    except ValidationError as error:
        problems = [
            f"--{message.replace(str(location[0]), str(location[0]).replace('_', '-'), 1)}"
            for location, message in explain(error, type(target), {(key,) for key in changes})
        ]
        raise ConfigurationError("\n".join(problems)) from error
    return spec.model_copy(update={"targets": spec.targets.model_copy(update={name: changed_target})})


def explain(
    error: ValidationError, model: type[BaseModel], known: Container[Location], also_allowed: tuple[str, ...] = ()
) -> list[tuple[Location, str]]:
    """Returns the location and a message for each mistake that pydantic found.

    A message names the key, what is wrong with its value and what is allowed.
    `known` has the locations in the document, and `also_allowed` the keys that are
    allowed at the top level besides the model's fields.
    """
    mistakes = []
    for problem in error.errors():
        location, kind, message, value = problem["loc"], problem["type"], problem["msg"], problem["input"]
        key = ".".join(map(str, location))
        if kind == "extra_forbidden":
            allowed = [*_list_keys_at(model, location[:-1]), *(also_allowed if len(location) == 1 else ())]
            close = difflib.get_close_matches(str(location[-1])[:100], allowed, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            mistakes.append((location, f"unknown key {shorten(key)!r}; {hint}allowed: {', '.join(allowed)}"))
        elif kind == "missing":
            mistakes.append((location, f"{key}: is missing"))
        elif kind == "value_error":
            text = message.removeprefix("Value error, ")
            # Pydantic reports a conflict between the keys of a mapping at the mapping;
            # the message begins with the key that it is about, or a path of keys.
            path = text.partition(":")[0].split(".")
            if path[0] in _list_keys_at(model, location):
                location = (*location, *path)
                text = f"{'.'.join(map(str, location))}:{text.partition(':')[2]}"
            elif key:
                text = f"{key}: {text}"
            mistakes.append((location, text))
        else:
            reason = f"{message[0].lower()}{message[1:]}"
            location = _select_known(location, known)
            key = ".".join(map(str, location))
            mistakes.append((location, f"{key}: {shorten(repr(value))} is not allowed: {reason}"))
    # Of a value that may be of several types, the deepest problems are those of the one
    # that was meant.
    locations = [location for location, _ in mistakes]
    return [
        mistake
        for mistake in mistakes
        if not any(len(other) > len(mistake[0]) and other[: len(mistake[0])] == mistake[0] for other in locations)
    ]


def _select_known(location: Location, known: Container[Location]) -> Location:
    """Returns a location without the parts that are not in the document.

    These are missing keys and, for a value that may be of several types, the types, as
    in `("trainer", "label", "str")`.
    """
    selected: Location = ()
    for part in location:
        selected = (*selected, part) if (*selected, part) in known else selected
    return selected


def _list_keys_at(model: type[BaseModel], location: Location) -> list[str]:
    """Returns the keys allowed at a location; empty if it does not hold a model.

    Keys of mappings and indexes of lists are skipped: the model is that of the values.
    """
    here: type[BaseModel] | None = model
    for part in location:
        fields = fields_by_key(here) if here else {}
        here = _find_model(fields[part].annotation) if part in fields else here
    return list(fields_by_key(here)) if here else []


def _find_model(annotation: Any) -> type[BaseModel] | None:
    """Returns the model in an annotation such as `dict[str, Model]`, if any."""
    parts = typing.get_args(annotation)
    if parts:
        return next(filter(None, map(_find_model, parts)), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _format_argument(name: str, value: Scalar | None = None) -> str:
    return f"-p {shorten(name if value is None else f'{name}={value}')}"
