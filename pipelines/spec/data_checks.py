"""Checks a pipeline's local data before anything starts, without TensorFlow."""

import os
from pathlib import Path

from tfx_distribute.components.example_gen import spans
from tfx_distribute.components.example_gen.formats import FORMATS
from tfx_distribute.components.example_gen.names import ALL_FILES, DifferentColumnsError
from tfx_distribute.pipelines.spec.files import read_text
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, Data, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

_GLOB_CHARACTERS = "*?[\\"


def check_data(spec: PipelineSpec) -> None:
    """Checks that local data files are readable, and have the columns that are used."""
    _check_schema(spec.data.schema_file)
    source, path = spec.data.source
    if source == "example_gen" or "://" in path:
        return
    data_format = FORMATS[source]
    try:
        files = [file for path in choose_spans(spec.data).paths for file in data_format.list_files(path)]
        columns = data_format.columns([files], spec.data.has_spans and spec.data.missing == "skip")
    except OSError as error:
        raise ConfigurationError(f"data.{source}: cannot read {error.filename}: {error.strerror}") from error
    except DataError as error:
        may_skip = isinstance(error, DifferentColumnsError) and spec.data.has_spans and spec.data.missing == "fail"
        hint = "; or write data.missing: skip, with which columns that a day lacks have no values" if may_skip else ""
        raise ConfigurationError(f"data.{source}: {error}{hint}") from error
    targets = spec.trainer.target_features() if spec.transform is None else {}
    for name, key in {**dict.fromkeys(spec.data.require, "data.require"), **targets}.items():
        if columns is not None and name not in columns:
            raise ConfigurationError(f"{key}: {files[0]} has no column {name!r}; it has {', '.join(columns)}")


def check_base_model(spec: PipelineSpec) -> None:
    """Checks that a local base model exists."""
    path = spec.trainer.base_model.path
    if path in ("", LATEST_BLESSED) or "://" in path:
        return
    # Of a checkpoint, the search for a model says what to write instead.
    if not os.path.exists(path) and not os.path.exists(f"{path}.index"):
        raise ConfigurationError(f"trainer.base_model: {path} does not exist; write the path of a model, or latest_blessed")


def _check_schema(schema_file: str | None) -> None:
    """Checks a local schema. If the data agree with it, ExampleValidator says."""
    if schema_file is None or "://" in schema_file:
        return
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    if not os.path.exists(schema_file):
        raise ConfigurationError(
            f"data.schema_file: {schema_file} does not exist; leave it out for the first run, then `tfx-distribute schema "
            "accept` writes it"
        )
    try:
        text_format.Parse(read_text(schema_file), schema_pb2.Schema())
    except ConfigurationError as error:
        raise ConfigurationError(f"data.schema_file: {error}") from error
    except text_format.ParseError as error:
        raise ConfigurationError(f"data.schema_file: {schema_file} is not a schema in text format: {error}") from error


def choose_spans(data: Data) -> spans.Chosen:
    """Returns the spans of a local source that a run would read."""
    name, source = data.source
    try:
        return spans.choose(source, data.spans_window)
    except (DataError, OSError) as error:
        raise ConfigurationError(f"data.{name}: {error}") from error


def get_input_base_and_pattern(data: Data) -> tuple[str, str]:
    """Returns a source's folder, and `*` or the name of one file in that folder.

    Raises:
      ConfigurationError: An address has wildcards, which are not expanded.
    """
    name, source = data.source
    is_address = "://" in source
    if is_address and any(character in source for character in _GLOB_CHARACTERS):
        raise ConfigurationError(
            f"data.{name}: {source} has one of the characters {' '.join(_GLOB_CHARACTERS)}; write the address of a "
            "folder, all files of which are read"
        )
    if not is_address and Path(source).is_file():
        return str(Path(source).parent), Path(source).name
    return source, ALL_FILES
