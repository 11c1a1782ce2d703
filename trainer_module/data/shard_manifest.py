"""What a folder of shards holds: written beside them, read before they are."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from tfx_distribute.trainer_module.errors import DataError
from tfx_distribute.trainer_module.lifecycle import atomic_files

FILE = "manifest.json"


@dataclass(frozen=True)
class ShardEntry:
    """One shard.

    Attributes:
      file: Its path below the folder of the manifest.
      num_examples: Examples in it.
      num_bytes: Bytes of the file.
      crc32c: Checksum of the file, in base64 as object stores show it (`gcloud storage hash`).
    """

    file: str
    num_examples: int
    num_bytes: int
    crc32c: str


@dataclass(frozen=True)
class SplitEntry:
    """One split.

    Attributes:
      num_examples: Examples in all of its shards.
      reason: Why there are so many shards.
      shards: Its shards, in their order.
    """

    num_examples: int
    reason: str
    shards: tuple[ShardEntry, ...]


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds.

    Attributes:
      compression: `none` or `gzip`.
      seed: What the order of examples was drawn with.
      schema_fingerprint: SHA-256 of the schema of the examples.
      splits: Name -> split.
      version: Of this document's form.
    """

    compression: str
    seed: int
    schema_fingerprint: str
    splits: Mapping[str, SplitEntry]
    version: int = 1

    def to_json(self) -> str:
        """The document."""
        return _MANIFEST.dump_json(self, indent=1).decode()


def read(folder: str) -> Manifest | None:
    """The manifest of a folder; None where it has none, as folders of other components.

    Args:
      folder: Folder or address.

    Raises:
      DataError: It is not one.
    """
    path = os.path.join(folder, FILE)
    text = atomic_files.read(path)
    if text is None:
        return None
    try:
        found = _MANIFEST.validate_json(text)
    except ValidationError as error:
        raise DataError(f"examples: {path} is not a manifest of shards: {error.errors()[0]['msg']}") from error
    if found.version != Manifest.version:
        raise DataError(f"examples: {path} is of version {found.version}; this is made for {Manifest.version}")
    return found


def write(manifest: Manifest, folder: str) -> None:
    """Writes a manifest: the last of all that a folder of shards gets."""
    atomic_files.write(os.path.join(folder, FILE), manifest.to_json())


_MANIFEST = TypeAdapter(Manifest)
