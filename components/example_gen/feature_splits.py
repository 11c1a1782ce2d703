"""Lets TFX split examples by one of their features, such as the user.

TFX takes the feature from a tf.Example that is parsed. Examples are serialized here,
which is quicker, unless `output_config` has a `partition_feature_name`.
"""

from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import tensorflow as tf
from tfx.proto import example_gen_pb2
from tfx.types import standard_component_specs
from tfx.utils import proto_utils

from tfx_distribute.trainer_module.errors import DataError


class ForSplits(beam.PTransform):
    """Parses serialized tf.Examples if TFX will split them by a feature.

    Args:
      exec_properties: Those of the ExampleGen.
    """

    def __init__(self, exec_properties: Mapping[str, Any]):
        super().__init__()
        output = example_gen_pb2.Output()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.OUTPUT_CONFIG_KEY], output)
        self._feature = output.split_config.partition_feature_name

    def expand(self, examples: beam.PCollection) -> beam.PCollection:
        """Returns the examples, parsed if needed."""
        if not self._feature:
            return examples
        return examples | "Parse" >> beam.Map(_parse, self._feature)


def _parse(serialized: bytes, name: str) -> tf.train.Example:
    """Parses an example that has a feature to split by.

    Raises:
      DataError: It has none, or TFX cannot split by it.
    """
    example = tf.train.Example.FromString(serialized)
    feature = example.features.feature[name] if name in example.features.feature else tf.train.Feature()
    kind = feature.WhichOneof("kind")
    if kind is None or not getattr(feature, kind).value:
        raise DataError(
            f"partition_feature_name: an example has no {name!r}, by which it would be assigned to a split; give each "
            "example a value, or split by another feature"
        )
    if kind == "float_list":
        raise DataError(
            f"partition_feature_name: {name!r} has decimal numbers, and TFX splits by whole numbers and text only; split "
            "by another feature"
        )
    return example
