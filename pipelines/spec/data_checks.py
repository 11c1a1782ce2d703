"""Checks a pipeline's local data before anything starts, without TensorFlow."""

import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tfx_distribute.components.example_gen import csv_rows, image_files, names, spans
from tfx_distribute.components.example_gen.names import ALL_FILES, DifferentColumnsError
from tfx_distribute.pipelines.spec import user_module
from tfx_distribute.pipelines.spec.files import FileError, read_text
from tfx_distribute.pipelines.spec.pipeline import LATEST_BLESSED, Data, PipelineSpec
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

CHECKED_ROWS = 100_000  # in all CSV files together: a fraction of a second; ExampleGen checks the rest
_GLOB_CHARACTERS = "*?[\\"
_NUMBERS_NEEDED = (
    "without a transform, it has to be a finite number in each row; change the data, or write a transform, whose "
    "preprocessing_fn makes numbers (tft.compute_and_apply_vocabulary does of text)"
)
GZIP_MAGIC = b"\x1f\x8b"


def check_data(spec: PipelineSpec) -> None:
    """Checks that local data files are readable, have rows, and have the same columns.

    Without a transform, the columns of labels and weights are checked too: they have to
    hold finite numbers, except in rows that `data.require` leaves out.
    """
    _check_schema(spec.data.schema_file)
    source, path = spec.data.source
    if source == "example_gen" or "://" in path:
        return
    files = list_files(spec.data)
    targets = spec.trainer.target_features() if spec.transform is None else {}
    takes_text = user_module.find(spec).makes_labels()
    try:
        skip_missing = spec.data.has_spans and spec.data.missing == "skip"
        columns = _read_columns(source, files, {} if takes_text else targets, spec.data.require, skip_missing)
    except (DataError, OSError) as error:
        may_skip = isinstance(error, DifferentColumnsError) and spec.data.has_spans and spec.data.missing == "fail"
        hint = "; or write data.missing: skip, with which columns that a day lacks have no values" if may_skip else ""
        raise ConfigurationError(f"data.{source}: {error}{hint}") from error
    if columns is None:
        return
    for name, key in {**dict.fromkeys(spec.data.require, "data.require"), **targets}.items():
        if name not in columns:
            raise ConfigurationError(f"{key}: {files[0]} has no column {name!r}; it has {', '.join(columns)}")


def check_base_model(spec: PipelineSpec) -> None:
    """Checks that a local base model exists."""
    path = spec.trainer.base_model.path
    if path in ("", LATEST_BLESSED) or "://" in path:
        return
    if not os.path.exists(path) and not os.path.exists(f"{path}.index"):  # or a checkpoint
        raise ConfigurationError(f"trainer.base_model: {path} does not exist; write the path of a model, or latest_blessed")


def _read_columns(
    source: str, files: list[Path], numbers: Mapping[str, str], required: Collection[str], skip_missing: bool
) -> list[str] | None:
    """Returns the columns of the files; None if only a run can tell.

    `files` of images are folders. `numbers` is name of a column that has to hold
    numbers -> the key that says so. Without a value of `required`, a row is left out.
    With `skip_missing`, some files may lack columns, and CSV files rows.
    """
    paths = [str(file) for file in files]
    if source == "csv":
        columns = csv_rows.list_columns(paths, _open, skip_missing)
        _check_rows(paths, numbers, required, skip_missing)
        return columns
    if source == "images":
        shared: list[str] = []
        for folder in paths:
            images = image_files.list_files(folder)
            found = image_files.check(folder, images, _open)
            shared = [name for name in found if name in shared or folder == paths[0]]
            if image_files.METADATA in images:
                _check_rows([os.path.join(folder, image_files.METADATA)], numbers, required)
            elif key := numbers.get(image_files.LABEL):
                raise DataError(f"{folder}: the label, the {key}, is text: the name of a folder; {_NUMBERS_NEEDED}")
        return shared
    if source == "parquet":
        from tfx_distribute.components.example_gen import parquet_columns  # loads pyarrow

        described = parquet_columns.inspect(paths, _open, skip_missing)
        for name, key in numbers.items():
            if described.get(name) == parquet_columns.BYTES:
                raise DataError(f"{files[0]}: column {name!r}, the {key}, is text; {_NUMBERS_NEEDED}")
        return list(described)
    for file in files:
        if not _is_gzipped(file):
            next(_read_record_lengths(file))
    return None


def _check_rows(files: list[str], numbers: Mapping[str, str], required: Collection[str], skip_empty: bool = False) -> None:
    remaining, empty = CHECKED_ROWS, []
    for file in files:
        checked = 0
        with _open(file) as stream:
            columns, rows = csv_rows.read(stream, file)
            positions = {columns.index(name): key for name, key in numbers.items() if name in columns}
            for line, cells in itertools.islice(rows, max(remaining, 1)):
                checked += 1
                if not _has_values(columns, cells, required):
                    continue
                for position, key in positions.items():
                    if not _is_finite_number(cells[position]):
                        name, cell = columns[position], cells[position]
                        hint = "" if cell else f"; or write data.require: [{name}], which leaves such rows out"
                        raise DataError(
                            f"{file}, line {line}: column {name!r}, the {key}, is {repr(cell) if cell else 'missing'}; "
                            f"{_NUMBERS_NEEDED}{hint}"
                        )
        empty += [file] * (not checked)
        remaining -= checked
    if empty and (len(empty) == len(files) or not skip_empty):
        hint = "" if len(files) == 1 else "; remove it, or, for one of several spans, write data.missing: skip"
        raise DataError(f"{empty[0]} has a header but no rows{hint}")


def _has_values(columns: Sequence[str], cells: Sequence[str], required: Collection[str]) -> bool:
    """Returns False for a row that is left out."""
    return not required or all(cell for name, cell in zip(columns, cells, strict=True) if name in required)


def _is_finite_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _open(file: str) -> IO[bytes]:
    return open(file, "rb")


def _check_schema(schema_file: str | None) -> None:
    """Checks a local schema. If the data agree with it, ExampleValidator says."""
    if schema_file is None or "://" in schema_file:
        return
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        text_format.Parse(read_text(schema_file), schema_pb2.Schema())
    except FileError as error:
        hint = (
            ""
            if os.path.exists(schema_file)
            else "; leave it out for the first run, then `tfx-distribute schema accept` writes it"
        )
        raise ConfigurationError(f"data.schema_file: cannot read {error}{hint}") from error
    except (text_format.ParseError, RecursionError) as error:
        raise ConfigurationError(f"data.schema_file: {schema_file} is not a schema in text format: {error}") from error


def list_files(data: Data) -> list[Path]:
    """Returns the files of a local source, in all spans to read; of images, folders."""
    name, _ = data.source
    paths = choose_spans(data).paths
    return (
        [Path(path) for path in paths]
        if name == "images"
        else [each for path in paths for each in list_data_files(name, path)]
    )


def choose_spans(data: Data) -> spans.Chosen:
    """Returns the spans of a local source that a run would read."""
    name, source = data.source
    try:
        return spans.choose(source, data.spans_window, list_names)
    except (DataError, OSError) as error:
        raise ConfigurationError(f"data.{name}: {error}") from error


def list_names(folder: str) -> list[str]:
    """Returns the names in a folder; none if it is not there."""
    if "://" in folder:
        from tfx.dsl.io import fileio  # imports TFX

        return list(fileio.listdir(folder)) if fileio.isdir(folder) else []
    return os.listdir(folder) if os.path.isdir(folder) else []


def list_data_files(name: str, source: str) -> list[Path]:
    """Returns the data files of a local source, sorted, without hidden files.

    `source` is a file or a folder, and `name` its key in the pipeline file.

    Raises:
      ConfigurationError: There are no files, a file is empty or cannot be read, or the
        files belong to a table with a log.
    """
    try:
        files = [Path(file) for file in names.list_files(source)]
        for file in files:
            if not file.stat().st_size:
                raise ConfigurationError(f"data.{name}: {file} is empty")
    except DataError as error:
        raise ConfigurationError(f"data.{name}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"data.{name}: cannot read {error.filename}: {error.strerror}") from error
    return files


def get_input_base_and_pattern(data: Data) -> tuple[str, str]:
    """Returns a source's folder, and `*` or the name of one file in that folder.

    Raises:
      ConfigurationError: An address has wildcards, which are not expanded.
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


def count_examples_and_bytes(data: Data) -> tuple[int, int] | None:
    """Counts the examples in local files, and estimates their bytes as tf.Examples.

    Returns None if only a run can tell.
    """
    name, source = data.source
    if "://" in source or name not in ("csv", "tfrecord") or (name == "tfrecord" and data.require):
        return None
    files = list_files(data)
    if name == "csv":
        return _count_csv_examples_and_bytes(files, data.require)
    if any(map(_is_gzipped, files)):
        return None  # counting would have to uncompress them
    try:
        count = sum(sum(1 for _ in _read_record_lengths(file)) for file in files)
    except DataError as error:
        raise ConfigurationError(f"data.tfrecord: {error}") from error
    return count, sum(file.stat().st_size for file in files)


def _count_csv_examples_and_bytes(files: list[Path], required: Collection[str]) -> tuple[int, int]:
    count = num_bytes = 0
    columns: list[str] = []
    for file in map(str, files):
        try:
            with _open(file) as stream:
                columns, rows = csv_rows.read(stream, file)
                for _, cells in rows:
                    if _has_values(columns, cells, required):
                        count += 1
                        num_bytes += sum(map(len, cells))
        except (DataError, OSError) as error:
            raise ConfigurationError(f"data.csv: {error}") from error
    # A tf.Example repeats the name of each feature, with about ten bytes around name
    # and value.
    return count, num_bytes + count * sum(len(column) + 10 for column in columns)


def _is_gzipped(file: Path) -> bool:
    return file.suffix == ".gz"


def _read_record_lengths(file: Path) -> Iterator[int]:
    """Yields the length of each record of a TFRecord file.

    A record is preceded by its length (8 bytes) and a checksum of the length (4 bytes),
    and followed by a checksum of its content (4 bytes).
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        while header := stream.read(12):
            length = int.from_bytes(header[:8], "little")
            if len(header) < 12 or length + 4 > size - stream.tell():
                if header.startswith(GZIP_MAGIC) and stream.tell() <= 12:
                    raise DataError(f"{file} is gzipped; give it a name that ends in .gz")
                raise DataError(f"{file} is not a TFRecord file, or ends in the middle of a record")
            stream.seek(length + 4, 1)
            yield length
