"""Examples artifacts -> the splits of a job: their files, their counts, and whether they are whole."""

import os

import tensorflow as tf
from absl import logging
from tfx import types
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils

from tfx_distribute.components import schemas
from tfx_distribute.trainer_module.data import read_errors, record_stream, shard_manifest, tfrecords
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError
from tfx_distribute.trainer_module.job.training_job import InputOptions, Split


class Splits:
    """The splits of Examples artifacts, a Sharder's or any others.

    Args:
      artifacts: The artifacts; a split that several have is read from all.
      parameters: How it is to be read.
      work_dir: A folder for what can be saved of damaged files.

    Attributes:
      names: Names of the splits.
      corrupt_records: Records that could not be read and were left out, of the splits that were read so far.

    Raises:
      ConfigurationError: They hold something else than tf.Examples.
    """

    def __init__(self, artifacts: list[types.Artifact], parameters: InputOptions, work_dir: str):
        for artifact in artifacts:
            payload = examples_utils.get_payload_format(artifact)
            if payload != example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE:
                name = example_gen_pb2.PayloadFormat.Name(payload)
                raise ConfigurationError(f"examples: {artifact.uri} holds {name}, not tf.Examples in TFRecord files")
        self._names = [artifact_utils.decode_split_names(artifact.split_names) for artifact in artifacts]
        self.names = {name for names in self._names for name in names}
        self.corrupt_records = 0
        self._artifacts = artifacts
        self._manifests = [shard_manifest.read(artifact.uri) for artifact in artifacts]
        self._most_corrupt = parameters.max_corrupt_records
        self._work_dir = work_dir

    def check_schema(self, transform_graph: str | None, schema: str | None) -> None:
        """Refuses shards of examples that another transform or schema made.

        Raises:
          DataError: They are.
        """
        known = [found for found in self._manifests if found]
        wanted = schemas.load_schema(transform_graph, schema) if known else None
        for found in known:
            if wanted is not None and found.schema_fingerprint != schemas.fingerprint(wanted):
                raise DataError(
                    "examples: the shards were made with another schema than "
                    f"{transform_graph or schema}; make them anew from what the Trainer is given"
                )

    def read(self, names: list[str], argument: str) -> Split:
        """The files and counts of one or several splits, as one.

        Args:
          names: Names of the splits.
          argument: The Trainer's argument that names them, for messages.

        Raises:
          ConfigurationError: There is no such split, or it has no files.
          DataError: A file is missing or damaged, and more records would be lost than may be.
        """
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ConfigurationError(
                f"{argument}: the examples have no split {missing[0]!r}; they have {', '.join(sorted(self.names))}"
            )
        parts = [
            self._sharded(artifact.uri, found, name)
            if found
            else self._unsharded(artifact_utils.get_split_uris([artifact], name))
            for name in names
            for artifact, found, own in zip(self._artifacts, self._manifests, self._names, strict=True)
            if name in own
        ]
        return Split(
            files=tuple(file for part in parts for file in part.files),
            num_examples=sum(part.num_examples for part in parts),
            num_bytes=sum(part.num_bytes for part in parts),
            sharded=len(parts) == 1 and parts[0].sharded,
        )

    def _sharded(self, uri: str, found: shard_manifest.Manifest, name: str) -> Split:
        shards = found.splits[name].shards
        files, num_examples, damaged = [], 0, False
        for shard in shards:
            path = os.path.join(uri, shard.file)
            whole = _check_is_there(path, shard, tolerant=bool(self._most_corrupt))
            if self._most_corrupt and (not whole or tfrecords.checksum(path) != shard.crc32c):
                path, kept = self._saved(path, shard.num_examples)
                damaged = True
            else:
                kept = shard.num_examples
            if kept:
                files.append(path)
            num_examples += kept
        num_bytes = sum(shard.num_bytes for shard in shards)
        # What is left of damaged shards is not of one size any more: then all processes read all, and share by records.
        return Split(tuple(files), num_examples, num_bytes, sharded=not damaged)

    def _unsharded(self, folders: list[str]) -> Split:
        patterns = [io_utils.all_files_pattern(folder) for folder in folders]
        files = sorted(file for pattern in patterns for file in tf.io.gfile.glob(pattern))
        if not files:
            raise ConfigurationError(f"examples: no file is named {' or '.join(patterns)}")
        if self._most_corrupt:
            files = [self._saved(file, None)[0] if tfrecords.first_damage(file) else file for file in files]
        try:
            num_examples = record_stream.count(files)
        except tf.errors.DataLossError as error:
            read_errors.explain(error, files)
            raise
        return Split(tuple(files), num_examples, sum(tf.io.gfile.stat(file).length for file in files))

    def _saved(self, path: str, num_examples: int | None) -> tuple[str, int]:
        """Writes what can be read of a damaged file elsewhere; counts the rest."""
        folder = os.path.join(self._work_dir, "examples")
        tf.io.gfile.makedirs(folder)
        saved = os.path.join(folder, f"{len(tf.io.gfile.listdir(folder))}-{os.path.basename(path)}")
        kept, first = 0, None
        lost = 0
        options = tf.io.TFRecordOptions(compression_type="GZIP" if tfrecords.is_gzipped(path) else "")
        with tf.io.TFRecordWriter(saved, options) as writer:
            for found in tfrecords.scan(path):
                if isinstance(found, tfrecords.Damage):
                    first = first or found
                    lost += 1
                else:
                    writer.write(found)
                    kept += 1
        # Only a manifest knows how many come behind the place where a file ends for its reader.
        lost = max(lost, num_examples - kept) if num_examples is not None else lost
        self.corrupt_records += lost
        logging.warning("Left out %d of the records of a damaged file: %s", lost, first)
        if self.corrupt_records > self._most_corrupt:
            raise DataError(
                f"examples: {first or path}; {self.corrupt_records} records are lost, but max_corrupt_records is "
                f"{self._most_corrupt}; make the examples anew, or write max_corrupt_records={self.corrupt_records} or more"
            )
        return saved, kept


def _check_is_there(path: str, shard: shard_manifest.ShardEntry, tolerant: bool) -> bool:
    """Whether a shard is as long as it was written.

    Raises:
      DataError: It is missing; or it is not, and that is not tolerated.
    """
    if not tf.io.gfile.exists(path):
        raise DataError(f"examples: the shard {path}, {shard.num_examples} examples, is missing; make the examples anew")
    length = tf.io.gfile.stat(path).length
    if length != shard.num_bytes and not tolerant:
        damage = tfrecords.first_damage(path)
        raise DataError(
            f"examples: {damage or path}; the file has {length} bytes of the {shard.num_bytes} that were written; make the "
            "examples anew, or write max_corrupt_records for how many may be left out"
        )
    return bool(length == shard.num_bytes)
