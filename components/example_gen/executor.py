"""Writes the rows of data files as gzipped TFRecord files of tf.Examples, by split.

A Beam pipeline divides the files into parts. Each part reads, assigns and writes its
own examples: only names of files pass between transforms, so that no runner keeps
examples in memory.
"""

import bisect
import contextlib
import hashlib
import itertools
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow as tf
from absl import logging
from tfx.components.example_gen import utils
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import proto_utils

from tfx_distribute.components import example_encoder
from tfx_distribute.components.beam import parts as beam_parts
from tfx_distribute.components.example_gen import csv_columns, formats, images, parquet_columns, records, require, spans
from tfx_distribute.components.example_gen.driver import choose_spans, read_column_types
from tfx_distribute.components.example_gen.names import FORMAT, LEFT_OUT, NEWEST_SPAN, REQUIRE, SPANS, WINDOW
from tfx_distribute.trainer_module.errors import DataError

# Format -> a function of a file, a number and a count, which yields every `count`-th
# piece of the file from that number on: record batches, or lists of tf.Examples.
_READERS: Mapping[str, Any] = {
    "csv": csv_columns.read,
    "parquet": parquet_columns.read,
    "tfrecord": records.read,
    "images": images.read,
}

# How finely files are divided, so that all processes have work until the end.
PARTS_PER_PROCESS, MAX_BINS_PER_PROCESS = 2, 16


@dataclass(frozen=True)
class _Part:
    """Every `num_parts`-th piece of some files, starting with piece `number`."""

    files: tuple[str, ...]
    number: int
    num_parts: int
    name: str  # of the files to write


@dataclass(frozen=True)
class _Splits:
    folders: Sequence[str]
    partial: str  # folder for files that are not complete
    ends: Sequence[int] = (1,)  # each split's share of the examples, added to those before it
    feature: str = ""  # name of the one that decides; empty for the whole example

    def assign(self, example: bytes) -> int:
        """Returns the number of an example's split, which TFX would assign, too."""
        key = example
        if self.feature:  # without a value, all such examples are in one split
            feature = tf.train.Example.FromString(example).features.feature[self.feature]
            key = feature.SerializeToString(deterministic=True)
        return bisect.bisect(self.ends, int.from_bytes(hashlib.sha256(key).digest(), "big") % self.ends[-1])


def _read_types(part: _Part) -> csv_columns.Types:
    return csv_columns.merge_types(csv_columns.read_types(file, part.number, part.num_parts) for file in part.files)


def _infer_types(parts: beam.PCollection, number: int, schema: Mapping[str, str]) -> beam.pvalue.AsSingleton:
    """Returns the types of the columns of a split, whose files are read once more."""
    types = parts | f"ReadTypes{number}" >> beam.Map(_read_types)
    types |= f"MergeTypes{number}" >> beam.CombineGlobally(csv_columns.merge_types)
    return beam.pvalue.AsSingleton(types | f"SchemaTypes{number}" >> beam.Map(csv_columns.as_in_schema, schema))


def make_parts(files: Sequence[str], processes: int) -> list[_Part]:
    """Divides the files of a split into parts, so that all processes have work."""
    if processes == 1:
        shares, num_parts = [(files, 0)], 1
    else:
        num_bins = min(len(files), MAX_BINS_PER_PROCESS * processes)
        num_parts = max(1, PARTS_PER_PROCESS * processes // num_bins)
        shares = [(files[first::num_bins], number) for first in range(num_bins) for number in range(num_parts)]
    return [
        _Part(tuple(share), number, num_parts, f"data_tfrecord-{position:05d}-of-{len(shares):05d}.gz")
        for position, (share, number) in enumerate(shares)
    ]


def _write(part: _Part, splits: _Splits, required: Sequence[str], data_format: str, *types: Any) -> require.Counts:
    """Writes the examples of a part as one file in each split, and counts them."""
    counts = require.Counts()
    # Written elsewhere first: a failed attempt leaves nothing that looks like examples.
    partial = [os.path.join(splits.partial, uuid.uuid4().hex) for _ in splits.folders]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(file, "GZIP")) for file in partial]
        for file in part.files:
            for batch in _READERS[data_format](file, part.number, part.num_parts, *types):
                batch = require.select(batch, required, counts)
                for example in example_encoder.encode(batch) if isinstance(batch, pa.RecordBatch) else batch:
                    writers[splits.assign(example)].write(example)
    for file, folder in zip(partial, splits.folders, strict=True):
        tf.io.gfile.rename(file, os.path.join(folder, part.name), overwrite=True)
    return counts


class Executor(base_beam_executor.BaseBeamExecutor):
    """Executor of the ExampleGens for data files."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX's name)
        """Writes the examples."""
        self._log_startup(input_dict, output_dict, exec_properties)
        inputs, output = example_gen_pb2.Input(), example_gen_pb2.Output()
        proto_utils.json_to_proto(exec_properties[standard_component_specs.INPUT_CONFIG_KEY], inputs)
        proto_utils.json_to_proto(exec_properties[standard_component_specs.OUTPUT_CONFIG_KEY], output)
        examples = artifact_utils.get_single_instance(output_dict[standard_component_specs.EXAMPLES_KEY])
        names = utils.generate_output_split_names(inputs, output)
        examples.split_names = artifact_utils.encode_split_names(names)
        examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
        examples_utils.set_file_format(examples, "tfrecords_gzip")
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        chosen = choose_spans(exec_properties)
        if chosen.names:
            logging.info("spans %s", chosen.describe())
            examples.set_string_custom_property(SPANS, chosen.describe())
            examples.set_string_custom_property(NEWEST_SPAN, chosen.names[-1])
        data_format = formats.FORMATS[exec_properties[FORMAT]]
        files = [
            [file for path in chosen.paths for file in data_format.list_files(path, split.pattern)]
            for split in inputs.splits
        ]
        columns = data_format.columns(files, spans.Window.from_json(exec_properties.get(WINDOW), None).skip_missing)
        required = json.loads(exec_properties.get(REQUIRE) or "[]")
        for name in required:
            if columns is not None and name not in columns:
                raise DataError(f"require: {base} has no column {name!r}; it has {', '.join(columns)}")

        folders = [artifact_utils.get_split_uri([examples], name) for name in names]
        partial = os.path.join(examples.uri, ".partial")
        for folder in (*folders, partial):
            tf.io.gfile.makedirs(folder)
        splits = [_Splits((folder,), partial) for folder in folders]
        if config := output.split_config.splits:  # of a single input
            ends = tuple(itertools.accumulate(split.hash_buckets for split in config))
            splits = [_Splits(tuple(folders), partial, ends, output.split_config.partition_feature_name)]
        processes = beam_parts.num_processes(self._beam_pipeline_args or [])
        counts, counts_file = [], os.path.join(partial, "counts.json")
        with self._make_beam_pipeline() as pipeline:
            for number, input_files in enumerate(files):
                parts = pipeline | f"Parts{number}" >> beam.Create(make_parts(input_files, processes))
                parts |= f"Spread{number}" >> beam.Reshuffle()
                schema = read_column_types(exec_properties)
                types = [_infer_types(parts, number, schema)] if exec_properties[FORMAT] == "csv" else []
                written = beam.Map(_write, splits[number], required, exec_properties[FORMAT], *types)
                counts.append(parts | f"Write{number}" >> written)
            if required:
                _ = counts | beam.Flatten() | beam.combiners.ToList() | beam.Map(require.save, counts_file)
        if required and (left_out := require.load(counts_file).describe()):
            examples.set_string_custom_property(LEFT_OUT, left_out)
            logging.info("left out %s", left_out)
        if tf.io.gfile.exists(partial):  # in object storage, folders end with their last file
            tf.io.gfile.rmtree(partial)
