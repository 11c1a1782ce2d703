"""Loads and fingerprints the schema of examples.

Readers compare fingerprints to detect examples that were made with another schema.
"""

import hashlib

import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils


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
