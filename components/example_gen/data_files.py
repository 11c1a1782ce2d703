"""Lists, opens and fingerprints data files, local or remote."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components.example_gen import names, spans
from tfx_distribute.components.example_gen.names import (
    ALL_FILES,
    COLUMN_TYPES,
    LAST_SPAN,
    SCHEDULED_AT,
    SCHEMA_FILE,
    SPANS_HINT,
    WINDOW,
)
from tfx_distribute.trainer_module.errors import DataError

_BLOCK = 1 << 20
_BATCH_BYTES = 4 << 20


def choose_spans(exec_properties: Mapping[str, Any]) -> spans.Chosen:
    """Returns the folders or files that an ExampleGen reads; see `spans.choose`."""
    values = (exec_properties.get(name) for name in (WINDOW, LAST_SPAN, SCHEDULED_AT))
    input_base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
    return spans.choose(
        input_base, spans.Window.from_json(*values), lambda folder: fileio.listdir(folder) if fileio.isdir(folder) else []
    )


def read_column_types(exec_properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns the types of a curated schema by feature; empty without a schema."""
    if COLUMN_TYPES in exec_properties:
        types: dict[str, str] = json.loads(exec_properties[COLUMN_TYPES])
        return types
    if SCHEMA_FILE not in exec_properties:
        return {}
    schema = io_utils.SchemaReader().read(exec_properties[SCHEMA_FILE])
    return {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in schema.feature}


def list_files(input_base: str, pattern: str) -> list[str]:
    """Returns the data files of a split, sorted.

    `pattern` is `*` for all data files of the folder; anything else is the name of one
    file, taken literally.

    A DataError says why they cannot be read.
    """
    if pattern != ALL_FILES:
        file = os.path.join(input_base, pattern)
        if not fileio.exists(file) or fileio.isdir(file):
            hint = f"; {SPANS_HINT}" if spans.has_fields(pattern) else ""
            raise DataError(f"{file} is not a file, or is not there{hint}")
        return [file]
    return names.list_files(input_base, fileio.listdir, fileio.isdir, fileio.exists)


def open_file(file: str) -> Any:
    """Opens a file for reading bytes."""
    # Opened with Beam, since TensorFlow drops carriage returns at the ends of lines.
    return FileSystems.open(file, compression_type=CompressionTypes.UNCOMPRESSED)


def to_batches(contents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yields lists of contents, each of a few MiB or of one that is larger."""
    batch, size = [], 0
    for content in contents:
        batch.append(content)
        size += len(content)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def fingerprint(files: Iterable[str], folder: str | None = None) -> str:
    """Fingerprints the content of files, or the size and mtime of remote ones.

    Returns their number, their size and a SHA-256, as in TFX's fingerprints. With a
    `folder`, their names in it count too.
    """
    sizes, digests = [], []
    for file in files:
        stat = fileio.stat(file)
        sizes.append(stat.length)
        name = f"{os.path.relpath(file, folder)} " if folder else ""
        digests.append(f"{file} {stat.length} {stat.mtime_nsec}" if "://" in file else f"{name}{_sha256(file)}")
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    return f"num_files:{len(sizes)},total_bytes:{sum(sizes)},sha256:{digest}"


def _sha256(file: str) -> str:
    digest = hashlib.sha256()
    with open(file, "rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
