"""Makes up which items users have chosen."""

from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from tfx.components.example_gen import base_example_gen_executor, component
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

USERS, ITEMS, CHOICES, TASTES = 2000, 1000, 20_000, 20


def _make_choices() -> list[tuple[str, str]]:
    """Returns pairs of a user and an item; in most of them, tastes agree."""
    random = np.random.default_rng(0)
    users, any_items = random.integers(0, USERS, CHOICES), random.integers(0, ITEMS, CHOICES)
    items_to_taste = any_items // TASTES * TASTES + users % TASTES
    items = np.where(random.random(CHOICES) < 0.8, items_to_taste, any_items)
    return [(f"user {user}", f"item {item}") for user, item in zip(users, items, strict=True)]


def _to_example(row: tuple[str, str]) -> tf.train.Example:
    feature = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        for name, value in zip(("user", "item"), row, strict=True)
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


@beam.ptransform_fn
def _read_choices(pipeline: beam.Pipeline, exec_properties: dict[str, Any], split_pattern: str) -> beam.PCollection:
    return pipeline | beam.Create(_make_choices()) | beam.Map(_to_example)


class Executor(base_example_gen_executor.BaseExampleGenExecutor):
    """Writes the choices as TFRecords. TFX splits them."""

    def GetInputSourceToExamplePTransform(self):  # noqa: N802 (TFX's name)
        """Returns the Beam transform that reads the source."""
        return _read_choices


class InteractionsExampleGen(component.QueryBasedExampleGen):
    """Reads choices: each example has `user` and `item`, the names of both."""

    data_version = "1"
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, output_config: example_gen_pb2.Output | None = None):
        super().__init__(
            input_config=example_gen_pb2.Input(splits=[example_gen_pb2.Input.Split(name="all", pattern="all")]),
            output_config=output_config,
        )
