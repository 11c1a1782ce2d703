"""Shards examples with Beam, transformed or as they are."""

import os
import uuid
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from absl import logging
from tfx import types
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components import schemas
from tfx_distribute.components.beam import parts
from tfx_distribute.components.sharder import beam_pipeline
from tfx_distribute.trainer_module import asking
from tfx_distribute.trainer_module.data import python_operations, shard_manifest
from tfx_distribute.trainer_module.errors import ConfigurationError

SHARDED_EXAMPLES = "sharded_examples"

Artifacts = dict[str, list[types.Artifact]]


class Executor(base_beam_executor.BaseBeamExecutor):
    """Writes each split of examples as TFRecord shards with a manifest."""

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:  # noqa: N802 (TFX's name)
        """Transforms, shuffles, writes and counts examples."""
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[standard_component_specs.EXAMPLES_KEY])
        sharded = artifact_utils.get_single_instance(output_dict[SHARDED_EXAMPLES])
        work_dir = os.path.join(self._get_tmp_dir(), uuid.uuid4().hex)
        options = _make_options(input_dict, output_dict, exec_properties, work_dir)
        fileio.makedirs(work_dir)
        try:
            with self._make_beam_pipeline() as pipeline:
                beam_pipeline.build(pipeline, options, parts.num_processes(self._beam_pipeline_args))
            splits = beam_pipeline.collect(options)
        finally:
            fileio.rmtree(work_dir)
            if fileio.exists(options.partial_dir):
                fileio.rmtree(options.partial_dir)
        sharded.split_names, sharded.span = examples.split_names, examples.span
        examples_utils.set_payload_format(sharded, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE)
        for name, split in splits.items():
            logging.info("Split %s: %d examples in %d shards", name, split.num_examples, len(split.shards))
        _copy_raw_examples(options)
        fingerprint = schemas.fingerprint(options.schema)
        # Written last: output without a manifest is incomplete.
        shard_manifest.write(shard_manifest.Manifest(fingerprint, splits), sharded.uri)


def _copy_raw_examples(options: beam_pipeline.ShardingOptions) -> None:
    """Copies a few examples as they are read, to ask the exported model later."""
    files = dict(zip(options.splits, options.files, strict=True))
    examples = asking.read_examples(files.get("eval", options.files[-1]))
    with tf.io.TFRecordWriter(os.path.join(options.output, shard_manifest.RAW_EXAMPLES)) as writer:
        for example in examples:
            writer.write(example)


def _make_options(
    inputs: Artifacts, outputs: Artifacts, exec_properties: dict[str, Any], work_dir: str
) -> beam_pipeline.ShardingOptions:
    (examples,) = inputs[standard_component_specs.EXAMPLES_KEY]
    schemas.check_are_examples(examples)
    splits = artifact_utils.decode_split_names(examples.split_names)

    def uri(artifacts: Artifacts, key: str) -> str | None:
        return artifact_utils.get_single_uri(artifacts[key]) if artifacts.get(key) else None

    transform_graph, schema_folder = uri(inputs, "transform_graph"), uri(inputs, "schema")
    if transform_graph:
        python_operations.check_transform_graph(transform_graph)
    schema = schemas.load_schema(transform_graph, schema_folder and io_utils.get_only_uri_in_dir(schema_folder))
    return beam_pipeline.ShardingOptions(
        splits=tuple(splits),
        files=tuple(tuple(_list_files(examples, split)) for split in splits),
        raw_schema=tft.TFTransformOutput(transform_graph).raw_metadata.schema if transform_graph else schema,
        schema=schema,
        transform_graph=transform_graph,
        num_shards=exec_properties.get("num_shards") or 0,
        num_readers=exec_properties.get("num_workers") or 1,
        compression=exec_properties.get("compression") or "none",
        seed=exec_properties.get("seed") or 0,
        output=artifact_utils.get_single_uri(outputs[SHARDED_EXAMPLES]),
        work_dir=work_dir,
    )


def _list_files(examples: types.Artifact, split: str) -> list[str]:
    (uri,) = artifact_utils.get_split_uris([examples], split)
    files = sorted(tf.io.gfile.glob(io_utils.all_files_pattern(uri)))
    if not files:
        raise ConfigurationError(f"examples: the split {split!r} has no files in {uri}")
    return files
