"""Proposes a schema for the data of a run, on top of the one that is curated."""

from pathlib import Path

import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils

from tfx_distribute.components.report.features import list_statistics
from tfx_distribute.pipelines.targets.local.runs import Run
from tfx_distribute.trainer_module.errors import ConfigurationError

_FILE = "schema.pbtxt"  # of TFX's Schema artifacts


def read(run: Run) -> str:
    """Returns the schema that a run has used, as text.

    Raises:
      ConfigurationError: The run has none, or its file was deleted.
    """
    artifact = run.find("Schema")
    path = Path(artifact.info.uri, _FILE) if artifact else None
    if path is None or not path.is_file():
        raise ConfigurationError(f"RUN: {run.id} has no schema: it ended before, or its files were deleted; write another")
    return path.read_text(encoding="utf-8")


def propose(run: Run, curated: str | None) -> str:
    """Returns a schema that the data of a run agree with, as text.

    TFDV adds features and values that are new, and relaxes what is not met any more.

    Args:
      run: The run, whose statistics are read.
      curated: The schema to change, as text; None for the one of the run.

    Raises:
      ConfigurationError: The run has no statistics, or the text is not a schema.
    """
    artifact = run.find("ExampleStatistics")
    statistics = list_statistics(artifact.info.uri) if artifact else []
    if not statistics:
        raise ConfigurationError(f"RUN: {run.id} has no statistics: it ended before, or they were deleted; write another")
    try:
        schema = text_format.Parse(read(run) if curated is None else curated, schema_pb2.Schema())
    except text_format.ParseError as error:
        raise ConfigurationError(f"data.schema_file: is not a schema in protobuf's text format: {error}") from error
    for _, split in statistics:
        schema = tfdv.update_schema(schema, split)
    return str(text_format.MessageToString(schema))


def write(text: str, path: Path) -> None:
    """Writes a schema file at once."""
    io_utils.write_string_file(str(path), text)
