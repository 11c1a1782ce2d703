"""What can be known of the data before anything starts, without TensorFlow."""

import gzip
import itertools
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tfx_distribute.components.example_gen import csv_rows
from tfx_distribute.components.example_gen.names import ALL_FILES, is_data_file, table_refusal
from tfx_distribute.pipelines.spec.files import MIB, FileError, read_text
from tfx_distribute.pipelines.spec.pipeline import Data, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

CHECKED_ROWS = 100_000  # of CSV files, in all: a fraction of a second; ExampleGen checks the rest
_GLOB_CHARACTERS = "*?[\\"
MAX_SCHEMA_BYTES = 16 * MIB
MAX_RECORD_BYTES = 2 << 30  # protobuf's limit; text read as a length is far beyond it
GZIP_MAGIC = b"\x1f\x8b"


def check_data(spec: PipelineSpec) -> None:
    """Checks that local data files can be read, have rows, and have the same columns.

    Raises:
      ConfigurationError: Something is wrong with them.
    """
    schema = _read_schema(spec.data.schema_file)
    source, path = spec.data.source
    if source == "example_gen" or "://" in path:
        return
    files = data_files(source, path)
    try:
        columns = _columns(source, files)
    except (DataError, OSError) as error:
        raise ConfigurationError(f"data.{source}: {error}") from error
    if columns is None:
        return
    for key in ("label", "example_weight"):
        name = getattr(spec.trainer, key)
        if spec.transform is None and name is not None and name not in columns:
            raise ConfigurationError(f"trainer.{key}: {files[0]} has no column {name!r}; it has {', '.join(columns)}")
    missing = [feature for feature in schema if feature not in columns]
    if missing:
        raise ConfigurationError(
            f"data.{source}: {files[0]} lacks columns of the schema: {', '.join(missing)}; it has {', '.join(columns)}"
        )


def _columns(source: str, files: list[Path]) -> list[str] | None:
    """Returns the columns that all files have; None where only a run can tell."""
    paths = [str(file) for file in files]
    if source == "csv":
        columns = csv_rows.common_columns(paths, _open)
        _check_rows(paths)
        return columns
    if source == "parquet":
        from tfx_distribute.components.example_gen import parquet_files  # loads pyarrow

        return list(parquet_files.inspect(paths, _open)[0])
    for file in files:
        if _is_gzipped(file):
            _check_gzipped(file)
        else:
            next(_record_lengths(file))
    return None


def _check_rows(files: list[str]) -> None:
    left = CHECKED_ROWS
    for file in files:
        with _open(file) as stream:
            _, rows = csv_rows.read(stream, file)
            checked = sum(1 for _ in itertools.islice(rows, max(left, 1)))
        if not checked:
            raise DataError(f"{file} has a header but no rows")
        left -= checked


def _open(file: str) -> IO[bytes]:
    return open(file, "rb")


def _read_schema(schema_file: str | None) -> list[str]:
    """Returns the names of the features of a local schema; none where there is none."""
    if schema_file is None or "://" in schema_file:
        return []
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(read_text(schema_file, MAX_SCHEMA_BYTES), schema_pb2.Schema())
    except FileError as error:
        raise ConfigurationError(f"data.schema_file: cannot read {error}") from error
    except (text_format.ParseError, RecursionError) as error:
        raise ConfigurationError(f"data.schema_file: {schema_file} is not a schema in text format: {error}") from error
    for feature in schema.feature:
        if _has_shape(feature, schema) and feature.presence.min_fraction != 1:
            raise ConfigurationError(
                f"data.schema_file: {schema_file}: feature {feature.name!r} has a shape, but min_fraction "
                f"{feature.presence.min_fraction:g}; write min_fraction: 1, or value_count in place of shape where examples "
                "may lack the feature"
            )
    return [feature.name for feature in schema.feature]


def _has_shape(feature: Any, schema: Any) -> bool:
    """Returns whether TFX reads a feature as a tensor of a fixed shape."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    stages_read = (schema_pb2.UNKNOWN_STAGE, schema_pb2.BETA, schema_pb2.PRODUCTION)
    if feature.deprecated or feature.lifecycle_stage not in stages_read or not feature.HasField("shape"):
        return False
    if schema.tensor_representation_group:  # which may describe the feature in another way
        return False
    sparse = {part.name for sparse in schema.sparse_feature for part in (*sparse.index_feature, sparse.value_feature)}
    return feature.name not in sparse


def data_files(name: str, source: str) -> list[Path]:
    """Returns the data files of a local source, sorted, without hidden ones.

    Args:
      name: Key of the source in the pipeline file, for messages.
      source: A file or a folder.

    Raises:
      ConfigurationError: There are none, they are empty, cannot be read, or belong to
        a table with a log.
    """
    path = Path(source)
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            files = [path]
        else:
            found = sorted(path.iterdir())
            if refusal := table_refusal(source, [file.name for file in found]):
                raise ConfigurationError(f"data.{name}: {refusal}")
            files = [file for file in found if is_data_file(file.name)]
        if not files:
            raise ConfigurationError(f"data.{name}: the folder {path} holds no files")
    except FileNotFoundError as error:
        raise ConfigurationError(f"data.{name}: {path} does not exist") from error
    except OSError as error:
        raise ConfigurationError(f"data.{name}: cannot read {path}: {error.strerror}") from error
    for file in files:
        if reason := _unusable(file):
            raise ConfigurationError(f"data.{name}: {reason}")
    return files


def _unusable(file: Path) -> str | None:
    """Returns why a file cannot be read as data; None if it can."""
    try:
        found = file.stat()
        if stat.S_ISDIR(found.st_mode):
            return f"{file} is a folder; the files have to be directly in {file.parent}"
        if not stat.S_ISREG(found.st_mode):
            return f"{file} is not a regular file"
        if not found.st_size:
            return f"{file} is empty"
        with file.open("rb"):
            pass
    except OSError as error:
        return f"cannot read {file}: {error.strerror}"
    try:
        str(file).encode()
    except UnicodeEncodeError:
        return f"the name of {os.fsencode(file)!r} is not UTF-8; rename it"
    return None


def input_base_and_pattern(data: Data) -> tuple[str, str]:
    """Returns a source as a folder, and `*` or the name of one file in it.

    Raises:
      ConfigurationError: An address has wildcards, which nothing here expands.
    """
    name, source = data.source
    if "://" in source:
        if any(character in source for character in _GLOB_CHARACTERS):
            raise ConfigurationError(
                f"data.{name}: {source} has one of the characters {' '.join(_GLOB_CHARACTERS)}; write the address of a "
                "folder, all files of which are read"
            )
        return source, ALL_FILES
    if Path(source).is_file():
        return str(Path(source).parent), Path(source).name
    return source, ALL_FILES


def examples_and_bytes(data: Data) -> tuple[int, int] | None:
    """How many examples local files hold, and about how many bytes as tf.Examples; None where only a run can tell."""
    name, source = data.source
    if "://" in source or name not in ("csv", "tfrecord"):
        return None
    files = data_files(name, source)
    if name == "csv":
        return _csv_examples(files)
    if any(map(_is_gzipped, files)):
        return None  # they would have to be uncompressed
    try:
        count = sum(sum(1 for _ in _record_lengths(file)) for file in files)
    except DataError as error:
        raise ConfigurationError(f"data.tfrecord: {error}") from error
    return count, sum(file.stat().st_size for file in files)


def _csv_examples(files: list[Path]) -> tuple[int, int]:
    count = num_bytes = 0
    columns: list[str] = []
    for file in map(str, files):
        try:
            with _open(file) as stream:
                columns, rows = csv_rows.read(stream, file)
                for _, cells in rows:
                    count += 1
                    num_bytes += sum(map(len, cells))
        except (DataError, OSError) as error:
            raise ConfigurationError(f"data.csv: {error}") from error
    # A tf.Example repeats the name of each feature, with about ten bytes around name and value.
    return count, num_bytes + count * sum(len(column) + 10 for column in columns)


def _is_gzipped(file: Path) -> bool:
    return file.suffix == ".gz"


def _check_gzipped(file: Path) -> None:
    """Reads the first record of a gzipped TFRecord file.

    Raises:
      DataError: There is none.
    """
    try:
        with gzip.open(file) as stream:
            header = stream.read(12)
            end = 12 + int.from_bytes(header[:8], "little") + 4
            is_whole = len(header) == 12 and end < MAX_RECORD_BYTES and stream.seek(end) == end
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be uncompressed ({error})") from error
    if not header:
        raise DataError(f"{file} holds no records")
    if not is_whole:
        raise DataError(_not_records(file))


def _not_records(file: Path) -> str:
    return f"{file} is no TFRecord file, or ends in the middle of a record"


def _record_lengths(file: Path) -> Iterator[int]:
    """The length of each record of a TFRecord file: 8 bytes before it, with a checksum of 4; one of 4 behind it."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        while header := stream.read(12):
            length = int.from_bytes(header[:8], "little")
            if len(header) < 12 or length + 4 > size - stream.tell():
                is_gzip = header.startswith(GZIP_MAGIC) and stream.tell() <= 12
                raise DataError(f"{file} is gzipped; give it a name that ends in .gz" if is_gzip else _not_records(file))
            stream.seek(length + 4, 1)
            yield length
