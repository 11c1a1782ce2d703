"""Reads and writes the manifest that lists the shards in a folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from tfx_distribute.trainer_module import atomic_files

FILE = "manifest.json"
RAW_EXAMPLES = "raw-examples.tfrecord"  # next to it: a few examples before the transform


@dataclass(frozen=True)
class ShardEntry:
    """One shard; `file` is relative to the manifest's folder.

    `crc32c` is in base64, as object stores show it (`gcloud storage hash`).
    """

    file: str
    num_examples: int
    num_bytes: int
    crc32c: str


@dataclass(frozen=True)
class FeatureValues:
    """The smallest and largest finite value of a numeric feature in a split.

    They are None if there is none. `num_not_finite` counts examples with a value that
    is NaN or infinite.
    """

    minimum: int | float | None = None
    maximum: int | float | None = None
    num_not_finite: int = 0


@dataclass(frozen=True)
class SplitEntry:
    """One split, with the values of its numeric features by name."""

    num_examples: int
    shards: tuple[ShardEntry, ...]
    features: Mapping[str, FeatureValues] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of shards."""

    schema_fingerprint: str  # SHA-256 of the examples' schema
    splits: Mapping[str, SplitEntry]


def read(folder: str) -> Manifest | None:
    """Returns the manifest of a folder; None if no Sharder wrote it."""
    text = atomic_files.read(os.path.join(folder, FILE))
    return None if text is None else _MANIFEST.validate_json(text)


def write(manifest: Manifest, folder: str) -> None:
    """Writes a manifest. Call this last: a folder with a manifest is complete."""
    atomic_files.write(os.path.join(folder, FILE), _MANIFEST.dump_json(manifest, indent=1).decode())


_MANIFEST = TypeAdapter(Manifest)
