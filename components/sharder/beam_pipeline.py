"""Builds the Sharder's Beam pipeline.

Examples -> transformed record batches -> sorted runs -> shards.

Between transforms that may run on different machines, only file names pass, never
examples. Memory therefore stays bounded on every runner; the direct runner keeps
everything in memory that passes between transforms.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from apache_beam.transforms.window import GlobalWindows
from pydantic import TypeAdapter
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder  # TFX's Transform uses it, too
from tfx_bsl.public import tfxio

from tfx_distribute.components import example_encoder
from tfx_distribute.components.beam.parts import MAX_PARTS
from tfx_distribute.components.example_gen.names import describe_empty_split
from tfx_distribute.components.sharder import sorted_runs
from tfx_distribute.trainer_module.data import read_errors, tfrecords
from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues, ShardEntry, SplitEntry
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError, first_line
from tfx_distribute.trainer_module.job import shard_plan

POSITION = "__tfx_distribute_position"  # column of a record batch: each example's place in the input
# Limits of a record batch, if the first SAMPLED_RECORDS of a file are like the others.
BATCH_EXAMPLES, BATCH_BYTES = 4000, 4 << 20
SAMPLED_RECORDS = 100
RUN_BYTES = 64 << 20  # size of the examples that are sorted in memory
OVERHEAD_BYTES = 100  # memory per example, besides its content
COMPRESSIONS = {"none": "", "gzip": "GZIP"}  # parameter -> TensorFlow's name
_SPLITS_FILE = "splits.json"  # in the work folder: what `_save` has written
_SPLITS = TypeAdapter(dict[str, SplitEntry])

FeatureSummary = Mapping[str, FeatureValues]


@dataclass(frozen=True)
class ShardingOptions:
    """The Sharder's inputs, parameters and outputs."""

    splits: tuple[str, ...]
    files: tuple[tuple[str, ...], ...]
    raw_schema: schema_pb2.Schema  # of the examples in these files
    schema: schema_pb2.Schema  # of the examples to write
    transform_graph: str | None  # None to write examples as they are
    num_shards: int  # of each split; 0 to choose a number, see `shard_plan.num_shards`
    num_readers: int
    compression: str
    seed: int
    output: str
    work_dir: str

    @property
    def partial_dir(self) -> str:
        """Folder for shards that are not complete, in the file system of the output."""
        return os.path.join(self.output, ".partial")


@dataclass(frozen=True)
class Part:
    """Every `num_parts`-th batch of a file, starting with batch `number`."""

    split: int
    file_number: int
    file: str
    number: int
    num_parts: int


def make_parts(files: Sequence[Sequence[str]], processes: int) -> list[Part]:
    """Divides the files of each split into about two parts per process."""
    parts = []
    for split, split_files in enumerate(files):
        num_parts = min(MAX_PARTS, -(-2 * processes // len(split_files))) if processes > 1 else 1
        parts += [
            Part(split, file_number, file, number, num_parts)
            for file_number, file in enumerate(split_files)
            for number in range(num_parts)
        ]
    return parts


def build(pipeline: beam.Pipeline, options: ShardingOptions, processes: int) -> None:
    """Adds the Sharder's transforms to a pipeline with so many `processes`."""
    source = tfxio.TFExampleBeamRecord("tfrecord", ["tfx_distribute", "Sharder"], options.raw_schema)
    raw_config = source.TensorAdapterConfig()
    batches = (
        pipeline
        | "Parts" >> beam.Create(make_parts(options.files, processes))
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(_Read(options.raw_schema, raw_config))
    )
    if options.transform_graph:
        with_position = raw_config.arrow_schema.append(pa.field(POSITION, pa.large_list(pa.int64())))
        config = tfxio.TensorAdapterConfig(with_position, raw_config.tensor_representations, raw_config.original_type_specs)
        transform = pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(options.transform_graph)
        with tft_beam.Context(temp_dir=options.work_dir, passthrough_keys={POSITION}):
            transformed, _ = ((batches, config), transform) | "Transform" >> tft_beam.TransformDataset(
                output_record_batches=True
            )
        batches = transformed | "RecordBatches" >> beam.Keys()
    runs = beam.pvalue.AsList(batches | "Sort" >> beam.ParDo(_Sort(options)))
    _ = (
        pipeline
        | "Splits" >> beam.Create(range(len(options.splits)))
        | "Divide" >> beam.FlatMap(_divide, options, runs)
        | "SpreadShards" >> beam.Reshuffle()
        | "WriteShards" >> beam.Map(_write_shard, options, runs)
        | "List" >> beam.combiners.ToList()
        | "Save" >> beam.Map(_save, options, runs)
    )


class _Read(beam.DoFn):
    """Reads a part of a file as record batches, with the position of each example."""

    def __init__(self, schema: schema_pb2.Schema, config: tfxio.TensorAdapterConfig):
        super().__init__()
        self._schema, self._config = schema, config

    def setup(self) -> None:
        self._decoder = ExamplesToRecordBatchDecoder(self._schema.SerializeToString())
        self._adapter = tfxio.TensorAdapter(self._config)

    def process(self, part: Part) -> Iterator[pa.RecordBatch]:
        compression = "GZIP" if tfrecords.is_gzipped(part.file) else ""
        records = tf.data.TFRecordDataset(part.file, compression_type=compression, buffer_size=1 << 20)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and its thread takes seconds to end
        records = records.with_options(options)
        try:
            lengths = [len(record) for record in records.take(SAMPLED_RECORDS).as_numpy_iterator()]
            if not lengths:
                return
            batch_size = max(1, min(BATCH_EXAMPLES, BATCH_BYTES // max(1, *lengths)))
            batches = records.batch(batch_size).enumerate().shard(part.num_parts, part.number).prefetch(1)
            for number, batch in batches.as_numpy_iterator():
                yield self._decode(part, int(number) * batch_size, batch.tolist())
        except tf.errors.OpError as error:
            read_errors.explain(error, [part.file])
            raise

    def _decode(self, part: Part, first_record: int, records: list[bytes]) -> pa.RecordBatch:
        try:
            decoded = self._decoder.DecodeBatch(records)
            self._adapter.ToBatchTensors(decoded)  # fails on values that do not match the schema
        except Exception as error:
            last, reason = first_record + len(records) - 1, first_line(error)
            raise DataError(
                f"examples: {part.file}, one of the records {first_record} to {last} does not match the schema: {reason}"
            ) from error
        positions = sorted_runs.make_positions(part.split, part.file_number, first_record, len(records))
        column = pa.LargeListArray.from_arrays(np.arange(len(records) + 1, dtype=np.int64), pa.array(positions))
        return pa.RecordBatch.from_arrays([*decoded.columns, column], [*decoded.schema.names, POSITION])


class _Sort(beam.DoFn):
    """Writes the examples of record batches as sorted runs."""

    def __init__(self, options: ShardingOptions):
        super().__init__()
        self._options = options

    def start_bundle(self) -> None:
        self._buffers: dict[int, _Buffer] = {}

    def process(self, batch: pa.RecordBatch) -> Iterator[sorted_runs.Run]:
        positions, content = _take_positions(batch)
        buffer = self._buffers.setdefault(sorted_runs.split_number(positions), _Buffer([], [], [], 0))
        examples = example_encoder.encode(content)
        buffer.summaries.append(summarize_features(content))
        buffer.keys.append(sorted_runs.draw_keys(positions, self._options.seed))
        buffer.examples += examples
        buffer.num_bytes += sum(map(len, examples)) + OVERHEAD_BYTES * len(examples)
        if sum(each.num_bytes for each in self._buffers.values()) >= RUN_BYTES:
            yield from self._write_runs()

    def finish_bundle(self) -> Iterator[Any]:
        for run in self._write_runs():
            yield GlobalWindows.windowed_value(run)

    def _write_runs(self) -> Iterator[sorted_runs.Run]:
        for split, buffer in self._buffers.items():
            path = os.path.join(self._options.work_dir, f"run-{uuid.uuid4().hex}")
            run = sorted_runs.write(path, split, np.concatenate(buffer.keys), buffer.examples)
            yield replace(run, features=merge_features(buffer.summaries))
        self._buffers = {}


@dataclass
class _Buffer:
    """Examples of one split that are not yet in a run."""

    keys: list[sorted_runs.Keys]
    examples: list[bytes]
    summaries: list[FeatureSummary]
    num_bytes: int


def _take_positions(batch: pa.RecordBatch) -> tuple[sorted_runs.Positions, pa.RecordBatch]:
    """Returns the column of positions, and the others."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if POSITION not in columns:
        raise ConfigurationError("preprocessing_fn: must return as many examples as it is given")
    positions = columns.pop(POSITION).flatten().to_numpy()
    return positions, pa.RecordBatch.from_arrays([*columns.values()], [*columns])


@dataclass(frozen=True)
class _Shard:
    """A shard to write: `count` examples of a split, starting with number `first`."""

    split: int
    number: int
    num_shards: int
    first: int
    count: int


def _divide(split: int, options: ShardingOptions, runs: Iterable[sorted_runs.Run]) -> list[_Shard]:
    split_runs = [run for run in runs if run.split == split]
    num_examples, num_bytes = sum(run.num_examples for run in split_runs), sum(run.num_bytes for run in split_runs)
    name, num_shards = options.splits[split], options.num_shards
    if not num_examples:
        raise ConfigurationError(describe_empty_split(name))
    if num_shards > num_examples:
        raise ConfigurationError(
            f"num_shards: {num_shards} shards are asked for, but the split {name!r} has {num_examples} examples; write at "
            f"most {num_examples}"
        )
    num_shards = num_shards or shard_plan.num_shards(num_examples, num_bytes, options.num_readers)
    first, shards = 0, []
    for number, count in enumerate(shard_plan.sizes(num_examples, num_shards)):
        shards.append(_Shard(split, number, num_shards, first, count))
        first += count
    return shards


def _write_shard(shard: _Shard, options: ShardingOptions, runs: Iterable[sorted_runs.Run]) -> tuple[int, ShardEntry]:
    """Writes a shard; returns its split's number, and its entry in the manifest."""
    split_runs = [run for run in runs if run.split == shard.split]
    num_examples = sum(run.num_examples for run in split_runs)
    bytes_per_example = sum(run.num_bytes for run in split_runs) / num_examples + OVERHEAD_BYTES
    folder = f"Split-{options.splits[shard.split]}"
    extension = ".gz" if options.compression == "gzip" else ""
    file = os.path.join(folder, f"examples-{shard.number:05d}-of-{shard.num_shards:05d}.tfrecord{extension}")
    path = os.path.join(options.output, file)
    tf.io.gfile.makedirs(os.path.dirname(path))
    # Written elsewhere first: a failed attempt leaves nothing that looks like a shard.
    # The temporary folder may be in another file system, where a rename fails.
    tf.io.gfile.makedirs(options.partial_dir)
    partial = os.path.join(options.partial_dir, uuid.uuid4().hex)
    writer_options = tf.io.TFRecordOptions(compression_type=COMPRESSIONS[options.compression])
    batch_size = max(1, int(RUN_BYTES / bytes_per_example))
    with tf.io.TFRecordWriter(partial, writer_options) as writer:
        for examples in sorted_runs.read_merged(split_runs, shard.first, shard.count, batch_size):
            for example in examples:
                writer.write(example)
    entry = ShardEntry(file, shard.count, tf.io.gfile.stat(partial).length, tfrecords.checksum(partial))
    tf.io.gfile.rename(partial, path, overwrite=True)
    return shard.split, entry


def _save(written: list[tuple[int, ShardEntry]], options: ShardingOptions, runs: Iterable[sorted_runs.Run]) -> None:
    """Writes the manifest's entries of all splits."""
    splits = {}
    for number, name in enumerate(options.splits):
        entries = sorted((entry for split, entry in written if split == number), key=lambda entry: entry.file)
        features = merge_features(run.features for run in runs if run.split == number)
        splits[name] = SplitEntry(sum(entry.num_examples for entry in entries), tuple(entries), features)
    with tf.io.gfile.GFile(os.path.join(options.work_dir, _SPLITS_FILE), "wb") as stream:
        stream.write(_SPLITS.dump_json(splits))


def collect(options: ShardingOptions) -> dict[str, SplitEntry]:
    """Returns the manifest's entries, by split, of shards that the pipeline wrote."""
    with tf.io.gfile.GFile(os.path.join(options.work_dir, _SPLITS_FILE), "rb") as stream:
        return _SPLITS.validate_json(stream.read())


def summarize_features(batch: pa.RecordBatch) -> dict[str, FeatureValues]:
    """Returns the values of each numeric feature of a batch, without nested lists."""
    summary = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_null(column.type) or not pa.types.is_primitive(column.type.value_type):
            continue
        values = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        is_finite = np.isfinite(values)
        num_not_finite = 0
        if not is_finite.all():
            num_not_finite = len(np.unique(pc.list_parent_indices(column).to_numpy()[~is_finite]))
            values = values[is_finite]
        low, high = (values.min().item(), values.max().item()) if len(values) else (None, None)
        summary[name] = FeatureValues(low, high, num_not_finite)
    return summary


def merge_features(summaries: Iterable[FeatureSummary]) -> dict[str, FeatureValues]:
    """Returns the summary of several batches of examples."""
    grouped: dict[str, list[FeatureValues]] = {}
    for summary in summaries:
        for name, values in summary.items():
            grouped.setdefault(name, []).append(values)
    return {
        name: FeatureValues(
            min((each.minimum for each in group if each.minimum is not None), default=None),
            max((each.maximum for each in group if each.maximum is not None), default=None),
            sum(each.num_not_finite for each in group),
        )
        for name, group in grouped.items()
    }
