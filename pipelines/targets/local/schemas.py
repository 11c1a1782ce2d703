"""Proposes a schema for the data of a run, on top of the one that is curated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_distribute.components.report.features import list_statistics
from tfx_distribute.pipelines.targets.local.runs import Run
from tfx_distribute.trainer_module.errors import ConfigurationError

_FILE = "schema.pbtxt"  # of TFX's Schema artifacts


def read(run: Run) -> str:
    """Returns the schema that a run has used, as text."""
    artifact = run.find("Schema")
    path = Path(artifact.uri, _FILE) if artifact else None
    if path is None or not path.is_file():
        raise ConfigurationError(f"RUN: {run.id} has no schema: it ended before, or its files were deleted; write another")
    return _to_text(text_format.Parse(path.read_text(encoding="utf-8"), schema_pb2.Schema()))


def propose(run: Run, curated: str | None) -> str:
    """Returns a schema that the data of a run agree with, as text.

    TFDV adds features and values that are new, and relaxes what is not met any more.
    `curated` is the schema to change, as text; None for the one of the run.
    """
    artifact = run.find("ExampleStatistics")
    statistics = list_statistics(artifact.uri) if artifact else []
    if not statistics:
        raise ConfigurationError(f"RUN: {run.id} has no statistics: it ended before, or they were deleted; write another")
    try:
        schema = text_format.Parse(read(run) if curated is None else curated, schema_pb2.Schema())
    except text_format.ParseError as error:
        raise ConfigurationError(f"data.schema_file: is not a schema in protobuf's text format: {error}") from error
    return _to_text(_update(schema, [split for _, split in statistics]))


def _to_text(schema: schema_pb2.Schema) -> str:
    return str(text_format.MessageToString(schema, as_utf8=True))


def _update(schema: schema_pb2.Schema, statistics: Sequence[Any]) -> schema_pb2.Schema:
    """Returns a schema that statistics agree with.

    TFDV marks a feature as deprecated if its column is missing, empty or of another
    type, and Transform then does not find it, even if it is there again. Those are left
    out, and described anew as far as there are values.
    """

    def update(before: schema_pb2.Schema) -> schema_pb2.Schema:
        for split in statistics:
            before = tfdv.update_schema(before, split)
        return before

    def is_deprecated(feature: schema_pb2.Feature) -> bool:
        return bool(feature.lifecycle_stage == schema_pb2.LifecycleStage.DEPRECATED)

    known = {feature.name for feature in schema.feature if is_deprecated(feature)}
    new = {feature.name for feature in update(schema).feature if is_deprecated(feature)} - known
    if not new:
        return update(schema)
    domains = {feature.domain for feature in schema.feature if feature.name in new and feature.domain}
    kept = schema_pb2.Schema()
    kept.CopyFrom(schema)
    del kept.feature[:], kept.string_domain[:]
    kept.feature.extend(feature for feature in schema.feature if feature.name not in new)
    kept.string_domain.extend(domain for domain in schema.string_domain if domain.name not in domains)
    return update(kept)
