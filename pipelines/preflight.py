"""What can be known of the data before anything starts, without TensorFlow."""

import csv
import struct
from collections.abc import Iterator
from pathlib import Path

from tfx_distribute.pipelines.files import MIB, FileError, read_text
from tfx_distribute.pipelines.spec import Data, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError

MAX_SCHEMA_BYTES = 16 * MIB


def check_data(spec: PipelineSpec) -> None:
    """Looks at local data files: that they are there, that they are not empty, that CSV headers agree.

    Raises:
      ConfigurationError: Something is wrong with them.
    """
    schema = _read_schema(spec.data.schema_file)
    name, source = spec.data.source
    if name == "example_gen" or "://" in source:
        return
    files = data_files(name, source)
    if name == "csv":
        columns = _csv_columns(files)
        for key in ("label", "example_weight"):
            name = getattr(spec.trainer, key)
            if spec.transform is None and name is not None and name not in columns:
                raise ConfigurationError(f"trainer.{key}: {files[0]} has no column {name!r}; it has {', '.join(columns)}")
        missing = [feature for feature in schema if feature not in columns]
        if missing:
            raise ConfigurationError(
                f"data.csv: {files[0]} lacks columns of the schema: {', '.join(missing)}; it has {', '.join(columns)}"
            )


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
    return [feature.name for feature in schema.feature]


def data_files(name: str, source: str) -> list[Path]:
    """The files of a local source, sorted.

    Raises:
      ConfigurationError: There are none, or they are empty.
    """
    path = Path(source)
    if not path.exists():
        raise ConfigurationError(f"data.{name}: {path} does not exist")
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not files:
        raise ConfigurationError(f"data.{name}: the folder {path} holds no files")
    for file in files:
        if not file.stat().st_size:
            raise ConfigurationError(f"data.{name}: {file} is empty")
    return files


def input_base_and_pattern(data: Data) -> tuple[str, str]:
    """A source as TFX's file-based ExampleGen wants it: a folder, and a pattern of files in it."""
    _, source = data.source
    if Path(source).is_file():
        return str(Path(source).parent), Path(source).name
    return source, "*"


def examples_and_bytes(data: Data) -> tuple[int, int] | None:
    """How many examples local files hold, and about how many bytes as tf.Examples; None where only a run can tell."""
    name, source = data.source
    if "://" in source or name not in ("csv", "tfrecord"):
        return None
    files = [file for file in data_files(name, source) if not file.name.startswith(".")]  # which ExampleGen leaves out
    if name == "csv":
        return _csv_examples(files)
    if any(file.suffix == ".gz" for file in files):
        return None  # they would have to be uncompressed
    return sum(sum(1 for _ in _record_lengths(file)) for file in files), sum(file.stat().st_size for file in files)


def _csv_examples(files: list[Path]) -> tuple[int, int]:
    count = num_bytes = 0
    for file in files:
        rows = csv_rows(file)
        columns = next(rows)
        for row in rows:
            if row:
                count += 1
                num_bytes += sum(map(len, row))
        # A tf.Example repeats the name of each feature, with about ten bytes around name and value.
    return count, num_bytes + count * sum(len(column) + 10 for column in columns)


def _record_lengths(file: Path) -> Iterator[int]:
    """The length of each record of a TFRecord file: 8 bytes before it, with a checksum of 4; one of 4 behind it."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        while len(header := stream.read(12)) == 12:
            (length,) = struct.unpack("<Q", header[:8])
            if length + 4 > size - stream.tell():
                raise ConfigurationError(f"data.tfrecord: {file} is no TFRecord file, or ends in the middle of a record")
            stream.seek(length + 4, 1)
            yield length


def csv_rows(file: Path) -> Iterator[list[str]]:
    """The rows of a CSV file, the header first.

    Raises:
      ConfigurationError: It cannot be read as UTF-8 text.
    """
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            yield from csv.reader(stream)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"data.csv: cannot read {file} as CSV in UTF-8: {error}") from error


def _csv_columns(files: list[Path]) -> list[str]:
    first: list[str] = []
    for file in files:
        rows = csv_rows(file)
        columns = next(rows)
        if next((row for row in rows if row), None) is None:
            raise ConfigurationError(f"data.csv: {file} has a header but no rows")
        first = first or columns
        if columns != first:
            missing = [name for name in first if name not in columns]
            extra = [name for name in columns if name not in first]
            found = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it adds {', '.join(extra)}"] * bool(extra)
            what = " and ".join(found) or "it has them in another order"
            raise ConfigurationError(f"data.csv: the columns of {file} are not those of {files[0]}: {what}")
    return first
