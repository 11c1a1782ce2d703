"""Fingerprints data files, and reads what says which data an ExampleGen reads."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components.example_gen import spans
from tfx_distribute.components.example_gen.names import (
    COLUMN_TYPES,
    LAST_SPAN,
    SCHEDULED_AT,
    SCHEMA_FILE,
    WINDOW,
)

_BLOCK = 1 << 20
_BATCH_BYTES = 4 << 20


def choose_spans(exec_properties: Mapping[str, Any]) -> spans.Chosen:
    """Returns the folders or files that an ExampleGen reads; see `spans.choose`."""
    values = (exec_properties.get(name) for name in (WINDOW, LAST_SPAN, SCHEDULED_AT))
    input_base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
    return spans.choose(input_base, spans.Window.from_json(*values))


def read_column_types(exec_properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns the types of a curated schema by feature; empty without a schema."""
    if COLUMN_TYPES in exec_properties:
        types: dict[str, str] = json.loads(exec_properties[COLUMN_TYPES])
        return types
    if SCHEMA_FILE not in exec_properties:
        return {}
    schema = io_utils.SchemaReader().read(exec_properties[SCHEMA_FILE])
    return {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in schema.feature}


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


def fingerprint(files: Iterable[tuple[str, str]]) -> str:
    """Fingerprints the content of files, or the size and mtime of remote ones.

    Each file comes with a name that counts, too. Returns their number, their size and a
    SHA-256, as in TFX's fingerprints.
    """
    sizes, digests = [], []
    for file, name in files:
        stat = fileio.stat(file)
        sizes.append(stat.length)
        digests.append(f"{file} {stat.length} {stat.mtime_nsec}" if "://" in file else f"{name} {_sha256(file)}")
    digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    return f"num_files:{len(sizes)},total_bytes:{sum(sizes)},sha256:{digest}"


def _sha256(file: str) -> str:
    digest = hashlib.sha256()
    with open(file, "rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
