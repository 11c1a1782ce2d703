"""Runs an ExampleGen without a pipeline: its driver, then its executor."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import tensorflow as tf
from beam_arguments import IN_MEMORY
from pyarrow import parquet
from tf_examples import make_example, write_examples
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts

from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.pipelines.targets import tfx_pipeline


def write_table(source: str, file: Path, table: Sequence[Mapping[str, Any]]) -> Path:
    """Writes rows as a file of a format, and returns it; None is a missing value."""
    if source == "csv":
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*table[0]])
            writer.writeheader()
            writer.writerows(table)
    elif source == "parquet":
        parquet.write_table(pa.Table.from_pylist(table), file, row_group_size=7)
    else:
        write_examples(file, [make_example(**{name: x for name, x in row.items() if x is not None}) for row in table])
    return file


def resolved(data: Data) -> dict[str, Any]:
    """Returns the execution properties after the driver, which are the cache key."""
    return _resolve(tfx_pipeline.make_example_gen(data))


def _resolve(component: FileBasedExampleGen) -> dict[str, Any]:
    driver = component.driver_class(metadata_handle=None)
    # A runner replaces the span, which is a RuntimeParameter.
    properties = {name: getattr(value, "default", value) for name, value in component.exec_properties.items()}
    return driver.resolve_exec_properties(properties, None, None)


def ingest(data: Data, folder: Path) -> dict[str, list[dict[str, list[Any] | None]]]:
    """Returns the examples of each split, as dicts from feature to values.

    A feature without a value is None.
    """
    return ingest_by(tfx_pipeline.make_example_gen(data), folder)


def ingest_by(component: FileBasedExampleGen, folder: Path) -> dict[str, list[dict[str, list[Any] | None]]]:
    """Returns the examples that an ExampleGen makes, see `ingest`."""
    examples = make_examples(component, folder)
    return {split: _examples(folder / f"Split-{split}") for split in artifact_utils.decode_split_names(examples.split_names)}


def make_examples(component: FileBasedExampleGen, folder: Path) -> standard_artifacts.Examples:
    """Returns the artifact that an ExampleGen makes in a folder."""
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=IN_MEMORY, tmp_dir=str(folder / ".temp"), unique_id="1"
    )
    executor = component.executor_spec.executor_class(context)
    executor.Do({}, {"examples": [examples]}, _resolve(component))
    return examples


def rows(data: Data, folder: Path) -> list[dict[str, list[Any] | None]]:
    """Returns the examples of all splits, see `ingest`."""
    return [example for split in ingest(data, folder).values() for example in split]


def _examples(split: Path) -> list[dict[str, list[Any] | None]]:
    files = [str(file) for file in sorted(split.glob("*.gz"))]
    examples = []
    for record in tf.data.TFRecordDataset(files, compression_type="GZIP").as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        examples.append({name: _values(features[name]) for name in sorted(features)})
    return examples


def _values(feature: tf.train.Feature) -> list[Any] | None:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) or None if kind else None
