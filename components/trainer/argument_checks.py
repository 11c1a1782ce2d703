"""Checks arguments of the Trainer and the Tuner that TFX takes in silence."""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from tfx import types
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.components.transform.component import Transform
from tfx.dsl.placeholder.placeholder import Placeholder
from tfx.orchestration import data_types

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line


def check_values(arguments: Mapping[str, Any]) -> None:
    """Checks that arguments are values or RuntimeParameters.

    A RuntimeParameter within a dict or a list is refused: the run would get its
    description in place of its value.
    """
    for name, value in arguments.items():
        for path, part in _leaves(value):
            if isinstance(part, Placeholder):
                where = f"{name}: {path!r}" if path else f"{name}: it"
                raise ConfigurationError(
                    f"{where} is a dynamic value of TFX, such as channel.future()[0].value; only values and "
                    "RuntimeParameters are taken; write one of these"
                )
            if path and isinstance(part, data_types.RuntimeParameter):
                raise ConfigurationError(
                    f"{name}: {path!r} is a RuntimeParameter; values within {name} are fixed when the pipeline is "
                    f"compiled; write a value, or {name}=RuntimeParameter({name!r}, str) for a JSON object with all of them"
                )


def to_message(name: str, value: Any, kind: type[Message]) -> Any:
    """Returns a message of `kind` for a message, a dict of its fields, or None.

    A RuntimeParameter is returned as it is.
    """
    if value is None or isinstance(value, Mapping):
        try:
            return json_format.ParseDict(value or {}, kind())
        except json_format.ParseError as error:
            fields = ", ".join(kind.DESCRIPTOR.fields_by_name)
            raise ConfigurationError(f"{name}: {first_line(error)} Write fields of {kind.__name__}: {fields}") from error
    return value


def check_transformed(examples: types.BaseChannel, transform_graph: types.BaseChannel) -> None:
    """Checks that a `build_model` gets no raw examples along with a transform graph.

    The model would train on raw features, while its serving signature transforms them.
    A graph that is not of a Transform in this pipeline may belong to files of
    transformed examples.
    """
    producer = getattr(examples, "producer_component", None)
    is_transformed = isinstance(getattr(transform_graph, "producer_component", None), Transform)
    if is_transformed and isinstance(producer, FileBasedExampleGen | QueryBasedExampleGen):
        raise ConfigurationError(
            f"examples: those of {producer.id} are raw, but the exported model applies transform_graph; write "
            'examples=transform.outputs["transformed_examples"], or leave transform_graph out'
        )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values within dicts and lists, each with its path."""
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        yield path, value
        return
    for key, part in parts:
        yield from _leaves(part, f"{path}.{key}" if path else str(key))
