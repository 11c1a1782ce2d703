"""Defines the Sharder, which writes examples as balanced, shuffled TFRecord shards."""

from typing import TypeAlias

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.orchestration import data_types
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from tfx_distribute.components.sharder import executor
from tfx_distribute.components.sharder.beam_pipeline import COMPRESSIONS
from tfx_distribute.trainer_module.errors import ConfigurationError

Number: TypeAlias = int | data_types.RuntimeParameter


class SharderSpec(component_spec.ComponentSpec):
    """The Sharder's inputs, outputs and parameters."""

    PARAMETERS = {  # noqa: RUF012 (as TFX declares them)
        "num_shards": component_spec.ExecutionParameter(type=int, optional=True),
        "num_workers": component_spec.ExecutionParameter(type=int, optional=True),
        "compression": component_spec.ExecutionParameter(type=str, optional=True),
        "seed": component_spec.ExecutionParameter(type=int, optional=True),
    }
    INPUTS = {  # noqa: RUF012
        standard_component_specs.EXAMPLES_KEY: component_spec.ChannelParameter(type=standard_artifacts.Examples),
        standard_component_specs.TRANSFORM_GRAPH_KEY: component_spec.ChannelParameter(
            type=standard_artifacts.TransformGraph, optional=True
        ),
        standard_component_specs.SCHEMA_KEY: component_spec.ChannelParameter(type=standard_artifacts.Schema, optional=True),
    }
    OUTPUTS = {  # noqa: RUF012
        executor.SHARDED_EXAMPLES: component_spec.ChannelParameter(type=standard_artifacts.Examples),
    }


class Sharder(base_beam_component.BaseBeamComponent):
    """Writes each split of examples as TFRecord shards that training processes share.

    The numbers of examples in the shards differ by at most one. Examples are shuffled
    over all shards, and the same seed gives the same bytes on every Beam runner. A
    manifest next to the shards records the number of examples, the size and the
    checksum of each. With a transform graph, the Sharder transforms the examples while
    it reads them, so that Transform need not write them:

    ```python
    transform = Transform(examples=..., schema=..., module_file=..., materialize=False)
    sharder = Sharder(
        examples=example_gen.outputs["examples"],
        transform_graph=transform.outputs["transform_graph"],
        num_shards=8,
    )
    trainer = Trainer(
        examples=sharder.outputs["sharded_examples"],
        transform_graph=transform.outputs["transform_graph"],
        ...
    )
    ```

    Component `outputs` contains:
     - `sharded_examples`: Channel of type `standard_artifacts.Examples`, with the
       splits of the input and `manifest.json`.
    """

    SPEC_CLASS = SharderSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel | None = None,
        schema: types.BaseChannel | None = None,
        num_shards: Number | None = None,
        num_workers: Number | None = None,
        compression: str | data_types.RuntimeParameter | None = None,
        seed: Number | None = None,
    ):
        """Constructs a Sharder component.

        Args:
          examples: Channel of `standard_artifacts.Examples`: tf.Examples in TFRecord
            files.
          transform_graph: Channel of `standard_artifacts.TransformGraph` to transform
            them with. Give exactly one of `transform_graph` and `schema`.
          schema: Channel of `standard_artifacts.Schema`. The features that it names are
            written as they are.
          num_shards: Shards of each split. Default 0: a multiple of `num_workers`, at
            least 16, with shards of at most 128 MiB.
          num_workers: Training processes that will read the shards. Only used if
            `num_shards` is 0. Default 1.
          compression: `none`, or `gzip` for smaller shards that take longer to read.
            Default `none`.
          seed: Seed of the order of examples. Default 0.

        Raises:
          ConfigurationError: The arguments contradict each other.
        """
        if bool(transform_graph) == bool(schema):
            raise ConfigurationError("Sharder: exactly one of transform_graph and schema must be supplied")
        if isinstance(compression, str) and compression not in COMPRESSIONS:
            raise ConfigurationError(f"compression: {compression!r} is not known; choose one of {', '.join(COMPRESSIONS)}")
        if isinstance(num_shards, int) and num_shards < 0:
            raise ConfigurationError(f"num_shards: {num_shards} is too small; write a number, or 0 for one that suits")
        super().__init__(
            spec=SharderSpec(
                examples=examples,
                transform_graph=transform_graph,
                schema=schema,
                num_shards=num_shards,
                num_workers=num_workers,
                compression=compression,
                seed=seed,
                sharded_examples=types.Channel(type=standard_artifacts.Examples),
            )
        )
