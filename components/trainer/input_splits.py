"""Finds the files and counts of a job's splits, and checks that they are undamaged."""

import os

import tensorflow as tf
from tfx import types
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils

from tfx_distribute.components import schemas
from tfx_distribute.trainer_module.data import read_errors, record_stream, shard_manifest, tfrecords
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError
from tfx_distribute.trainer_module.job.training_job import Split


class Splits:
    """The splits of Examples artifacts, written by a Sharder or by any other component.

    A split that several of the artifacts have is read from all.
    """

    def __init__(self, artifacts: list[types.Artifact]):
        for artifact in artifacts:
            schemas.check_are_examples(artifact)
        self._names_per_artifact = [artifact_utils.decode_split_names(artifact.split_names) for artifact in artifacts]
        self.names = {name for names in self._names_per_artifact for name in names}
        self._artifacts = artifacts
        self._manifests = [shard_manifest.read(artifact.uri) for artifact in artifacts]

    def check_schema(self, transform_graph: str | None, schema: str | None) -> None:
        """Checks that shards were made with the same transform or schema."""
        manifests = [manifest for manifest in self._manifests if manifest]
        expected = schemas.load_schema(transform_graph, schema) if manifests else None
        for manifest in manifests:
            if expected is not None and manifest.schema_fingerprint != schemas.fingerprint(expected):
                raise DataError(
                    "examples: the shards were made with another schema than "
                    f"{transform_graph or schema}; regenerate them with the Trainer's transform_graph or schema"
                )

    def read(self, names: list[str], argument: str) -> Split:
        """Returns the files and counts of one or several splits, combined into one.

        `argument` is the Trainer's argument that names them, for messages.
        """
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ConfigurationError(
                f"{argument}: the examples have no split {missing[0]!r}; they have {', '.join(sorted(self.names))}"
            )
        parts = [
            self._read_sharded(artifact.uri, manifest, name)
            if manifest
            else self._read_unsharded(artifact_utils.get_split_uris([artifact], name))
            for name in names
            for artifact, manifest, artifact_names in zip(
                self._artifacts, self._manifests, self._names_per_artifact, strict=True
            )
            if name in artifact_names
        ]
        return Split(
            files=tuple(file for part in parts for file in part.files),
            num_examples=sum(part.num_examples for part in parts),
            num_bytes=sum(part.num_bytes for part in parts),
            sharded=len(parts) == 1 and parts[0].sharded,
        )

    def read_ranges(self, names: list[str], argument: str, feature: str) -> dict[str, tuple[float, float]]:
        """Returns the smallest and largest value of a label or weight in each split.

        This leaves out splits that no Sharder has written, or where the feature has no
        numbers. `argument` is the Trainer's argument that names it, for messages.
        """
        manifests = [manifest for manifest in self._manifests if manifest]
        entries = [(name, manifest.splits[name]) for manifest in manifests for name in names if name in manifest.splits]
        values = [(name, entry.features[feature]) for name, entry in entries if feature in entry.features]
        bad = {name: each.num_not_finite for name, each in values if each.num_not_finite}
        if bad:
            places = ", ".join(f"{count} in the split {name!r}" for name, count in bad.items())
            raise DataError(
                f"{argument}: {sum(bad.values())} examples have a {feature!r} that is NaN or infinite ({places}); write a "
                "number for it in preprocessing_fn, or leave these examples out of the data"
            )
        limits: dict[str, list[float]] = {name: [] for name in names}
        for name, each in values:
            limits[name] += [limit for limit in (each.minimum, each.maximum) if limit is not None]
        return {name: (min(each), max(each)) for name, each in limits.items() if each}

    def _read_sharded(self, uri: str, manifest: shard_manifest.Manifest, name: str) -> Split:
        shards = manifest.splits[name].shards
        for shard in shards:
            _check_length(os.path.join(uri, shard.file), shard)
        return Split(
            tuple(os.path.join(uri, shard.file) for shard in shards if shard.num_examples),
            sum(shard.num_examples for shard in shards),
            sum(shard.num_bytes for shard in shards),
            sharded=True,
        )

    def _read_unsharded(self, folders: list[str]) -> Split:
        patterns = [io_utils.all_files_pattern(folder) for folder in folders]
        files = sorted(file for pattern in patterns for file in tf.io.gfile.glob(pattern))
        if not files:
            raise ConfigurationError(f"examples: no file is named {' or '.join(patterns)}")
        try:
            num_examples = record_stream.count(files)
        except tf.errors.DataLossError as error:
            read_errors.explain(error, files)
            raise
        return Split(tuple(files), num_examples, sum(tf.io.gfile.stat(file).length for file in files))


def find_raw_examples(artifacts: list[types.Artifact], transform_graph: str | None) -> tuple[str, ...]:
    """Returns files of raw examples to ask the model with; empty if there are none."""
    if not artifacts:
        return ()
    latest = artifacts[-1]
    if shard_manifest.read(latest.uri):
        return (os.path.join(latest.uri, shard_manifest.RAW_EXAMPLES),)
    is_example = examples_utils.get_payload_format(latest) == example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    splits = artifact_utils.decode_split_names(latest.split_names) if latest.split_names else []
    if transform_graph or not is_example or not splits:  # those of a transform are transformed already
        return ()
    (folder,) = artifact_utils.get_split_uris([latest], "eval" if "eval" in splits else splits[0])
    return tuple(sorted(tf.io.gfile.glob(io_utils.all_files_pattern(folder))))


def _check_length(path: str, shard: shard_manifest.ShardEntry) -> None:
    """Checks that a shard is as long as it was when it was written."""
    length = tf.io.gfile.stat(path).length
    if length != shard.num_bytes:
        raise DataError(
            f"examples: {tfrecords.first_damage(path) or path}; the file has {length} bytes of the {shard.num_bytes} that "
            "were written; make the examples again"
        )
