"""Runs the Sharder's executor with real Beam and TFT on raw examples."""

import collections
import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
import tensorflow as tf
from beam_arguments import IN_MEMORY, TWO_PROCESSES
from tf_examples import make_example, make_schema, write_examples
from tfx.components.util import examples_utils
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.components import schemas
from tfx_distribute.components.beam import errors
from tfx_distribute.components.beam import parts as beam_parts
from tfx_distribute.components.sharder import beam_pipeline
from tfx_distribute.components.sharder.executor import Executor
from tfx_distribute.trainer_module.data import shard_manifest
from tfx_distribute.trainer_module.data.shard_manifest import FeatureValues
from tfx_distribute.trainer_module.data.tfrecords import checksum
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError


def preprocessing_fn(inputs):
    return {"twice": inputs["number"] * 2, "name": inputs["name"]}


def example(number: int) -> bytes:
    return make_example(number=number, name=f"name {number}")


@pytest.fixture(scope="module")
def schema(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("schema")
    (folder / "schema.pbtxt").write_text(make_schema(number=("INT", 1), name=("BYTES", 1)))
    return folder


@pytest.fixture(scope="module")
def transform_graph(tmp_path_factory, schema) -> Path:
    """A transform graph made by TFT, with TFX's layout."""
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.beam.tft_beam_io import WriteMetadata

    folder = tmp_path_factory.mktemp("transform")
    metadata = tft.DatasetMetadata(schemas.load_schema(None, str(schema / "schema.pbtxt")))
    with beam.Pipeline(argv=IN_MEMORY) as pipeline, tft_beam.Context(temp_dir=str(folder / "tmp")):
        raw = pipeline | beam.Create([{"number": [1], "name": [b"one"]}])
        transform = (raw, metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = transform | tft_beam.WriteTransformFn(str(folder / "graph"))
        _ = metadata | WriteMetadata(str(folder / "graph" / "metadata"), pipeline)
    return folder / "graph"


def artifact(kind: type, uri: Path):
    made = kind()
    made.uri = str(uri)
    return made


@dataclass
class Sharded:
    """The output of a Sharder."""

    artifact: standard_artifacts.Examples
    manifest: shard_manifest.Manifest
    folder: Path

    def numbers(self, split: str, feature: str = "number") -> Iterator[list[int]]:
        """Yields the values of a feature in each shard."""
        for shard in self.manifest.splits[split].shards:
            compression = "GZIP" if shard.file.endswith(".gz") else ""
            records = tf.data.TFRecordDataset(str(self.folder / shard.file), compression).as_numpy_iterator()
            yield [tf.train.Example.FromString(record).features.feature[feature].int64_list.value[0] for record in records]

    def content(self) -> list[bytes]:
        return [(self.folder / shard.file).read_bytes() for split in self.manifest.splits.values() for shard in split.shards]


@pytest.fixture
def shard(tmp_path, schema) -> Callable[..., Sharded]:
    """Makes raw examples and runs the Sharder's executor on them."""
    raw = artifact(standard_artifacts.Examples, tmp_path / "raw")

    def write(split: str, file: str, numbers: range) -> None:
        folder = tmp_path / "raw" / f"Split-{split}"
        folder.mkdir(parents=True, exist_ok=True)
        write_examples(folder / file, map(example, numbers), "GZIP" if file.endswith(".gz") else "")

    def run(
        train: int = 0,
        held_out: int = 0,
        output: str = "sharded",
        graph: Path | None = None,
        beam_args: list[str] = IN_MEMORY,
        splits: list[str] | None = None,
        **properties,
    ) -> Sharded:
        if train:
            write("train", "part-0.gz", range(0, train, 2))
            write("train", "part-1.gz", range(1, train, 2))
        if held_out:
            write("eval", "part-0", range(held_out))
        raw.split_names = artifact_utils.encode_split_names(splits or ["train"] + ["eval"] * (held_out > 0))
        examples_utils.set_payload_format(raw, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
        made = artifact(standard_artifacts.Examples, tmp_path / output)
        inputs = {"examples": [raw]}
        if graph:
            inputs["transform_graph"] = [artifact(standard_artifacts.TransformGraph, graph)]
        else:
            inputs["schema"] = [artifact(standard_artifacts.Schema, schema)]
        outputs = {"sharded_examples": [made]}
        context = BaseBeamExecutor.Context(beam_pipeline_args=beam_args, tmp_dir=str(tmp_path / "tmp"), unique_id="1")
        try:
            Executor(context).Do(inputs, outputs, properties)
        except Exception as error:
            raise (errors.find_own(error) or error) from error
        finally:
            assert not (tmp_path / output / ".partial").exists()
        found = shard_manifest.read(made.uri)
        assert found is not None
        assert os.listdir(tmp_path / "tmp" / "1" if (tmp_path / "tmp" / "1").exists() else tmp_path / "tmp") in ([], ["1"])
        return Sharded(made, found, tmp_path / output)

    return run


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_each_example_once_in_balanced_shards_with_a_true_manifest(shard, compression):
    made = shard(train=103, held_out=11, num_shards=4, compression=compression)
    shards = list(made.numbers("train"))
    assert [len(numbers) for numbers in shards] == [26, 26, 26, 25]
    assert sorted(number for numbers in shards for number in numbers) == list(range(103))
    assert [len(numbers) for numbers in made.numbers("eval")] == [3, 3, 3, 2]
    assert artifact_utils.decode_split_names(made.artifact.split_names) == ["train", "eval"]
    for split in made.manifest.splits.values():
        assert split.num_examples == sum(entry.num_examples for entry in split.shards)
        for entry, numbers in zip(split.shards, made.numbers("train" if split.num_examples == 103 else "eval"), strict=True):
            path = made.folder / entry.file
            assert (entry.num_examples, entry.num_bytes) == (len(numbers), path.stat().st_size)
            assert entry.crc32c == checksum(str(path))
            assert path.suffix == (".gz" if compression == "gzip" else ".tfrecord")


def test_examples_are_shuffled_over_all_shards_as_the_seed_says(shard):
    made = shard(train=400, num_shards=2, seed=1)
    again, other = (shard(output=f"again-{seed}", num_shards=2, seed=seed) for seed in (1, 2))
    assert made.content() == again.content() != other.content()
    first, second = made.numbers("train")
    assert first != sorted(first)
    for numbers in (first, second):  # of 200, about a hundred from each file, and from each half
        assert 70 < sum(number % 2 for number in numbers) < 130
        assert 70 < sum(number < 200 for number in numbers) < 130
    assert sum(abs(a - b) == 2 for a, b in itertools.pairwise(first)) < 10, "neighbours are parted"


@pytest.mark.e2e
def test_other_processes_write_the_same_bytes(shard, transform_graph):
    made = shard(train=3000, held_out=500, num_shards=3, graph=transform_graph)
    again = {"splits": ["train", "eval"], "num_shards": 3, "graph": transform_graph}
    parallel = shard(output="parallel", beam_args=TWO_PROCESSES, **again)
    assert made.content() == parallel.content()


def test_more_examples_than_fit_in_memory(shard, monkeypatch):
    """Writes many runs, each read in many pieces."""
    whole = shard(train=1000, num_shards=3)
    monkeypatch.setattr(beam_pipeline, "RUN_BYTES", 3000)
    monkeypatch.setattr(beam_pipeline, "BATCH_EXAMPLES", 10)
    pieces = shard(output="pieces", num_shards=3)
    assert whole.content() == pieces.content()


def test_examples_are_transformed(shard, transform_graph):
    made = shard(train=50, num_shards=2, graph=transform_graph)
    assert sorted(number for numbers in made.numbers("train", "twice") for number in numbers) == list(range(0, 100, 2))
    expected = schemas.fingerprint(schemas.load_schema(str(transform_graph), None))
    assert made.manifest.schema_fingerprint == expected


def test_values_of_numbers_are_in_the_manifest(shard, transform_graph, monkeypatch):
    """Of all runs together; text has none."""
    monkeypatch.setattr(beam_pipeline, "RUN_BYTES", 3000)
    monkeypatch.setattr(beam_pipeline, "BATCH_EXAMPLES", 10)
    made = shard(train=50, held_out=8, num_shards=2, graph=transform_graph)
    assert {name: dict(split.features) for name, split in made.manifest.splits.items()} == {
        "train": {"twice": FeatureValues(0, 98)},
        "eval": {"twice": FeatureValues(0, 14)},
    }


def test_number_of_shards_is_chosen(shard):
    made = shard(train=50, held_out=5, num_workers=3)
    assert (len(made.manifest.splits["train"].shards), len(made.manifest.splits["eval"].shards)) == (18, 5)


def test_more_shards_than_examples_are_refused(shard, tmp_path):
    with pytest.raises(ConfigurationError, match="^num_shards: 6 shards are asked for, but the split 'eval' has 5 examples"):
        shard(train=50, held_out=5, num_shards=6)
    assert shard_manifest.read(str(tmp_path / "sharded")) is None


def test_empty_split_is_refused(shard, tmp_path):
    shard(train=5, num_shards=1)
    (tmp_path / "raw" / "Split-eval").mkdir()
    write_examples(tmp_path / "raw" / "Split-eval" / "part-0", [])
    with pytest.raises(ConfigurationError, match="^examples: the split 'eval' is empty"):
        shard(splits=["train", "eval"], num_shards=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
            r"record 4 at byte \d+: it does not match its checksum; make the examples again$",
        ),
        (lambda content: content[: len(content) * 4 // 5 + 20], r"record 4 at byte \d+: the file ends in the middle of it"),
    ],
)
def test_input_that_cannot_be_read_is_named(shard, tmp_path, change, message):
    shard(train=50, num_shards=1)
    file = tmp_path / "raw" / "Split-train" / "part-2"
    write_examples(file, map(example, range(5)))
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(DataError, match=f"^examples: {file}, {message}"):
        shard(num_shards=1, output="other")


def test_example_that_does_not_match_the_schema_is_named(shard, tmp_path):
    shard(train=50, num_shards=1)
    file = tmp_path / "raw" / "Split-train" / "part-2"
    write_examples(file, [example(1), make_example(number=1.5)])
    with pytest.raises(DataError, match=rf"^examples: {file}, one of the records 0 to 1 does not match the schema: .*"):
        shard(num_shards=1, output="other")


def test_parts_serve_all_processes():
    assert len(beam_pipeline.make_parts([["a"], ["b", "c"]], 1)) == 3
    num_parts = collections.Counter(part.file for part in beam_pipeline.make_parts([["a"], ["b", "c"]], 2))
    assert num_parts == {"a": 4, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [(IN_MEMORY, 1), (TWO_PROCESSES, 2), (["--runner=DataflowRunner"], beam_parts.MAX_PARTS), ([], 1)],
)
def test_processes_of_a_runner(arguments, processes):
    assert beam_parts.num_processes(arguments) == processes


def test_examples_with_values_that_are_not_finite_are_counted():
    """Missing values, text and nested lists are left out."""
    first = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([[1.0, math.nan], None, [-2.0], [math.inf, math.nan]], pa.large_list(pa.float32())),
            "n": pa.array([[7], [], [2**62], [-3]], pa.list_(pa.int64())),
            "text": pa.array([[b"a"], [b"b"], None, [b"c"]], pa.large_list(pa.large_binary())),
            "nested": pa.array([[[1.0]], None, None, None], pa.large_list(pa.large_list(pa.float32()))),
            "nothing": pa.nulls(4),
            "empty": pa.array([None, [], [math.nan], None], pa.large_list(pa.float32())),
        }
    )
    one = beam_pipeline.summarize_features(first)
    assert one == {
        "x": FeatureValues(-2.0, 1.0, 2),
        "n": FeatureValues(-3, 2**62, 0),
        "empty": FeatureValues(None, None, 1),
    }
    other = beam_pipeline.summarize_features(
        pa.RecordBatch.from_pydict({"x": pa.array([[5.0], [-math.inf]], pa.list_(pa.float32()))})
    )
    assert beam_pipeline.merge_features([one, other]) == {**one, "x": FeatureValues(-2.0, 5.0, 3)}
