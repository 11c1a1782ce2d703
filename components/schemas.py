"""Loads and fingerprints the schema of examples, and checks their format.

Readers compare fingerprints to detect examples that were made with another schema.
"""

import hashlib

import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.utils import io_utils

from tfx_distribute.trainer_module.errors import ConfigurationError


def load_schema(transform_graph: str | None, schema_file: str | None) -> schema_pb2.Schema | None:
    """Returns the schema of a transform graph, or else that in a file, or None."""
    if transform_graph:
        return tft.TFTransformOutput(transform_graph).transformed_metadata.schema
    if schema_file is None:
        return None
    return io_utils.SchemaReader().read(schema_file)


def fingerprint(schema: schema_pb2.Schema) -> str:
    """Returns the SHA-256 of a schema, however its file is formatted."""
    return hashlib.sha256(schema.SerializeToString(deterministic=True)).hexdigest()


def check_are_examples(artifact: types.Artifact) -> None:
    """Checks that an Examples artifact holds tf.Examples."""
    payload = examples_utils.get_payload_format(artifact)
    if payload != example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE:
        name = example_gen_pb2.PayloadFormat.Name(payload)
        raise ConfigurationError(f"examples: {artifact.uri} holds {name}, not tf.Examples in TFRecord files")
