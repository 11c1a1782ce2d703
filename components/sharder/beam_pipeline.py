"""What the Sharder asks of Beam: examples -> transformed record batches -> sorted runs -> shards.

Examples never pass from one step of Beam's to another that may lie on another machine: what passes are names of files. So
memory stays bounded on every runner; the direct one keeps all that passes between steps in memory.
"""

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.transforms.window import GlobalWindows
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder  # as TFX's own Transform takes it
from tfx_bsl.public import tfxio

from tfx_distribute.components.sharder import sorted_runs as runs_lib
from tfx_distribute.components.sharder.example_encoder import Encoder
from tfx_distribute.trainer_module.data import read_errors
from tfx_distribute.trainer_module.data.shard_manifest import ShardEntry, SplitEntry
from tfx_distribute.trainer_module.data.tfrecords import checksum, is_gzipped
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError
from tfx_distribute.trainer_module.job import shard_plan as shards_lib

POSITION = "__position"  # column of a record batch: where each example comes from
BATCH_EXAMPLES, BATCH_BYTES = 1000, 4 << 20  # of a record batch, at most, if the first SAMPLED records are like the others
SAMPLED = 100
RUN_BYTES = 64 << 20  # of examples that are sorted in memory
OVERHEAD_BYTES = 100  # of each example in memory beside its content
MAX_PARTS = 8  # in which a file is transformed in parallel; each of them reads all of it
COMPRESSIONS = {"none": "", "gzip": "GZIP"}  # as TensorFlow calls them


@dataclass(frozen=True)
class ShardingOptions:
    """What is to be done.

    Attributes:
      splits: Names of the splits.
      files: The files of each split.
      raw_schema: Schema of their examples.
      schema: Schema of the examples that are written.
      transform_graph: Folder of the transform graph; None where examples are written as they are.
      num_shards: Shards of each split; 0 for as many as suit.
      num_readers: Processes that will read them.
      compression: `none` or `gzip`.
      seed: What the order is drawn with.
      output: Folder that gets a folder of shards for each split.
      statistics: Folder that gets a folder of statistics for each split; None for none.
      work_dir: Folder for runs and other things of the meantime.
    """

    splits: tuple[str, ...]
    files: tuple[tuple[str, ...], ...]
    raw_schema: schema_pb2.Schema
    schema: schema_pb2.Schema
    transform_graph: str | None
    num_shards: int
    num_readers: int
    compression: str
    seed: int
    output: str
    statistics: str | None
    work_dir: str


@dataclass(frozen=True)
class Part:
    """Every `of`-th batch of a file, from batch `number` on."""

    split: int
    file_number: int
    file: str
    number: int
    of: int


def num_processes(beam_pipeline_args: Sequence[str]) -> int:
    """How many processes a Beam pipeline has at least to itself; 1 where that is not known to be more."""
    options = PipelineOptions(list(beam_pipeline_args))
    if (options.view_as(StandardOptions).runner or "DirectRunner").rpartition(".")[2] != "DirectRunner":
        return MAX_PARTS
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "in_memory":
        return 1
    return direct.direct_num_workers or os.cpu_count() or 1


def parts(files: Sequence[Sequence[str]], processes: int) -> list[Part]:
    """The parts that processes take one by one: several of a file where there are fewer files than processes."""
    found = []
    for split, of_split in enumerate(files):
        of = min(MAX_PARTS, -(-2 * processes // len(of_split))) if processes > 1 else 1
        found += [Part(split, number, file, part, of) for number, file in enumerate(of_split) for part in range(of)]
    return found


def build(pipeline: beam.Pipeline, request: ShardingOptions, processes: int) -> None:
    """Puts the steps into a pipeline."""
    source = tfxio.TFExampleBeamRecord("tfrecord", ["tfx_distribute", "Sharder"], request.raw_schema)
    raw = source.TensorAdapterConfig()
    batches = (
        pipeline
        | "Parts" >> beam.Create(parts(request.files, processes))
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(_Read(request.raw_schema, raw))
    )
    if request.transform_graph:
        with_position = raw.arrow_schema.append(pa.field(POSITION, pa.large_list(pa.int64())))
        config = tfxio.TensorAdapterConfig(with_position, raw.tensor_representations, raw.original_type_specs)
        transform = pipeline | "ReadTransformFn" >> tft_beam.ReadTransformFn(request.transform_graph)
        with tft_beam.Context(temp_dir=request.work_dir, passthrough_keys={POSITION}):
            transformed, _ = ((batches, config), transform) | "Transform" >> tft_beam.TransformDataset(
                output_record_batches=True
            )
        batches = transformed | "RecordBatches" >> beam.Keys()
    if request.statistics:
        _statistics(batches, request)
    runs = beam.pvalue.AsList(batches | "Sort" >> beam.ParDo(_Sort(request)))
    _ = (
        pipeline
        | "Splits" >> beam.Create(range(len(request.splits)))
        | "Divide" >> beam.FlatMap(_divide, request, runs)
        | "SpreadShards" >> beam.Reshuffle()
        | "WriteShards" >> beam.Map(_write_shard, request, runs)
    )


def _statistics(batches: beam.PCollection, request: ShardingOptions) -> None:
    import tensorflow_data_validation as tfdv  # seconds that the processes of Beam need not spend

    for number, name in enumerate(request.splits):
        # Called as StatisticsGen calls it, so that whatever reads its output reads this.
        path = os.path.join(str(request.statistics), f"Split-{name}", "FeatureStats.pb")
        _ = (
            batches
            | f"Of[{name}]" >> beam.Filter(lambda batch, number=number: runs_lib.split_of(_positions(batch)) == number)
            | f"WithoutPositions[{name}]" >> beam.Map(_without_positions)
            | f"Statistics[{name}]" >> tfdv.GenerateStatistics(tfdv.StatsOptions(schema=request.schema))
            | f"WriteStatistics[{name}]" >> tfdv.WriteStatisticsToBinaryFile(path)
        )


class _Read(beam.DoFn):
    """Part -> record batches of its examples, each with its position."""

    def __init__(self, schema: schema_pb2.Schema, config: tfxio.TensorAdapterConfig):
        super().__init__()
        self._schema, self._config = schema, config

    def setup(self) -> None:
        self._decoder = ExamplesToRecordBatchDecoder(self._schema.SerializeToString())
        self._adapter = tfxio.TensorAdapter(self._config)

    def process(self, part: Part) -> Iterator[pa.RecordBatch]:
        compression = "GZIP" if is_gzipped(part.file) else ""
        records = tf.data.TFRecordDataset(part.file, compression_type=compression, buffer_size=1 << 20)
        options = tf.data.Options()
        options.autotune.enabled = False  # there is nothing to tune, and seconds pass until its thread has ended
        records = records.with_options(options)
        try:
            lengths = [len(record) for record in records.take(SAMPLED).as_numpy_iterator()]
            if not lengths:
                return
            size = max(1, min(BATCH_EXAMPLES, BATCH_BYTES // max(1, *lengths)))
            batches = records.batch(size).enumerate().shard(part.of, part.number).prefetch(1)
            for number, batch in batches.as_numpy_iterator():
                yield self._decoded(part, int(number) * size, batch.tolist())
        except tf.errors.OpError as error:
            read_errors.explain(error, [part.file], remedy="make the examples anew")
            raise

    def _decoded(self, part: Part, first: int, records: list[bytes]) -> pa.RecordBatch:
        try:
            decoded = self._checked(records)
        except Exception as error:
            for number, record in enumerate(records):
                self.setup()  # a decoder that has failed goes on failing
                try:
                    self._checked([record])
                except Exception as own:
                    what = str(own).partition("\n")[0]
                    raise DataError(
                        f"examples: {part.file}, record {first + number} does not match the schema: {what}"
                    ) from error
            raise
        positions = runs_lib.positions(part.split, part.file_number, first, len(records))
        column = pa.LargeListArray.from_arrays(np.arange(len(records) + 1, dtype=np.int64), pa.array(positions))
        return pa.RecordBatch.from_arrays([*decoded.columns, column], [*decoded.schema.names, POSITION])

    def _checked(self, records: list[bytes]) -> pa.RecordBatch:
        decoded = self._decoder.DecodeBatch(records)
        self._adapter.ToBatchTensors(decoded)
        return decoded


class _Sort(beam.DoFn):
    """Record batches -> runs."""

    def __init__(self, request: ShardingOptions):
        super().__init__()
        self._request = request

    def setup(self) -> None:
        self._encoder = Encoder(self._request.schema)

    def start_bundle(self) -> None:
        self._held: dict[int, _Held] = {}

    def process(self, batch: pa.RecordBatch) -> Iterator[runs_lib.Run]:
        positions = _positions(batch)
        held = self._held.setdefault(runs_lib.split_of(positions), _Held([], [], 0))
        examples = self._encoder.encode(_without_positions(batch))
        held.keys.append(runs_lib.keys(positions, self._request.seed))
        held.examples += examples
        held.num_bytes += sum(map(len, examples)) + OVERHEAD_BYTES * len(examples)
        if sum(other.num_bytes for other in self._held.values()) >= RUN_BYTES:
            yield from self._written()

    def finish_bundle(self) -> Iterator[Any]:
        for run in self._written():
            yield GlobalWindows.windowed_value(run)

    def _written(self) -> Iterator[runs_lib.Run]:
        for split, held in self._held.items():
            path = os.path.join(self._request.work_dir, f"run-{uuid.uuid4().hex}")
            yield runs_lib.write(path, split, np.concatenate(held.keys), held.examples)
        self._held = {}


@dataclass
class _Held:
    keys: list[runs_lib.Keys]
    examples: list[bytes]
    num_bytes: int


def _positions(batch: pa.RecordBatch) -> runs_lib.Positions:
    index = batch.schema.get_field_index(POSITION)
    if index < 0:
        raise ConfigurationError("preprocessing_fn: returns another number of examples than it is given")
    return batch.column(index).flatten().to_numpy()


def _without_positions(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = [name for name in batch.schema.names if name != POSITION]
    return pa.RecordBatch.from_arrays([batch.column(batch.schema.get_field_index(name)) for name in kept], kept)


@dataclass(frozen=True)
class _Shard:
    """A shard that is to be written: `count` examples of a split, from number `first` on."""

    split: int
    number: int
    of: int
    first: int
    count: int
    reason: str


def _divide(split: int, request: ShardingOptions, runs: Iterable[runs_lib.Run]) -> list[_Shard]:
    own = [run for run in runs if run.split == split]
    total, num_bytes = sum(int(run.counts.sum()) for run in own), sum(run.num_bytes for run in own)
    return divide(split, request.splits[split], total, num_bytes, request.num_shards, request.num_readers)


def divide(split: int, name: str, total: int, num_bytes: int, num_shards: int, num_readers: int) -> list[_Shard]:
    """The shards of a split.

    Raises:
      ConfigurationError: It is empty, or has fewer examples than shards are asked for.
    """
    if not total:
        raise ConfigurationError(f"examples: the split {name!r} is empty; give it a larger share of the data")
    if num_shards > total:
        raise ConfigurationError(
            f"num_shards: {num_shards} shards are asked for, but the split {name!r} has {total} examples; write at most "
            f"{total}"
        )
    of, reason = (num_shards, "asked for") if num_shards else shards_lib.num_shards(total, num_bytes, num_readers)
    first, found = 0, []
    for number, count in enumerate(shards_lib.sizes(total, of)):
        found.append(_Shard(split, number, of, first, count, reason))
        first += count
    return found


def _write_shard(shard: _Shard, request: ShardingOptions, runs: Iterable[runs_lib.Run]) -> None:
    own = [run for run in runs if run.split == shard.split]
    each = sum(run.num_bytes for run in own) / sum(int(run.counts.sum()) for run in own) + OVERHEAD_BYTES
    name = request.splits[shard.split]
    extension = ".gz" if request.compression == "gzip" else ""
    file = os.path.join(f"Split-{name}", f"examples-{shard.number:05d}-of-{shard.of:05d}.tfrecord{extension}")
    path = os.path.join(request.output, file)
    tf.io.gfile.makedirs(os.path.dirname(path))
    # Elsewhere first: a try that dies leaves nothing that looks like a shard.
    partial = os.path.join(request.work_dir, f"shard-{uuid.uuid4().hex}")
    options = tf.io.TFRecordOptions(compression_type=COMPRESSIONS[request.compression])
    with tf.io.TFRecordWriter(partial, options) as writer:
        for examples in runs_lib.merged(own, shard.first, shard.count, at_once=max(1, int(RUN_BYTES / each))):
            for example in examples:
                writer.write(example)
    entry = ShardEntry(file, shard.count, tf.io.gfile.stat(partial).length, checksum(partial))
    tf.io.gfile.rename(partial, path, overwrite=True)
    with tf.io.gfile.GFile(_entry_path(request, shard.split, shard.number), "w") as stream:
        stream.write(json.dumps({"entry": asdict(entry), "of": shard.of, "reason": shard.reason}))


def _entry_path(request: ShardingOptions, split: int, number: int) -> str:
    return os.path.join(request.work_dir, f"entry-{split}-{number}.json")


def collect(request: ShardingOptions) -> dict[str, SplitEntry]:
    """What the pipeline wrote: name -> split."""
    found = {}
    for split, name in enumerate(request.splits):
        written: list[dict[str, Any]] = []
        while not written or len(written) < written[0]["of"]:
            with tf.io.gfile.GFile(_entry_path(request, split, len(written))) as stream:
                written.append(json.loads(stream.read()))
        shards = tuple(ShardEntry(**one["entry"]) for one in written)
        found[name] = SplitEntry(sum(shard.num_examples for shard in shards), written[0]["reason"], shards)
    return found
