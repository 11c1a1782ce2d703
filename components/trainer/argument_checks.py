"""Checks arguments of the Trainer and the Tuner that TFX takes in silence."""

from collections.abc import Iterator, Mapping
from typing import Any

from tfx import types
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.dsl.placeholder.placeholder import Placeholder
from tfx.orchestration import data_types
from tfx.types import channel as channel_types

from tfx_distribute.trainer_module.errors import ConfigurationError


def check_values(arguments: Mapping[str, Any]) -> None:
    """Checks that arguments are values or RuntimeParameters.

    Args:
      arguments: Name of an argument -> its value. A RuntimeParameter within a dict or a
        list is refused: the run would get its description in place of its value.

    Raises:
      ConfigurationError: An argument is neither.
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


def check_transformed(examples: types.BaseChannel) -> None:
    """Checks that a `build_model` gets no raw examples along with a transform graph.

    The model would train on raw features, while its serving signature transforms them.

    Args:
      examples: The examples to train on.

    Raises:
      ConfigurationError: The examples come from an ExampleGen.
    """
    for channel in _sources(examples):
        producer = getattr(channel, "producer_component", None)
        if isinstance(producer, FileBasedExampleGen | QueryBasedExampleGen):
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


def _sources(channel: types.BaseChannel) -> Iterator[types.BaseChannel]:
    """Yields the channels that make up a union or pass through nested pipelines."""
    if isinstance(channel, channel_types.UnionChannel):
        for member in channel.channels:
            yield from _sources(member)
    elif isinstance(channel, channel_types.PipelineInputChannel | channel_types.PipelineOutputChannel):
        yield from _sources(channel.wrapped)
    else:
        yield channel
