"""Checks arguments of the Trainer and the Tuner that TFX takes in silence."""

from collections.abc import Iterator

from tfx import types
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.types import channel as channel_types

from tfx_distribute.trainer_module.errors import ConfigurationError


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


def _sources(channel: types.BaseChannel) -> Iterator[types.BaseChannel]:
    """Yields the channels that make up a union or pass through nested pipelines."""
    if isinstance(channel, channel_types.UnionChannel):
        for member in channel.channels:
            yield from _sources(member)
    elif isinstance(channel, channel_types.PipelineInputChannel | channel_types.PipelineOutputChannel):
        yield from _sources(channel.wrapped)
    else:
        yield channel
