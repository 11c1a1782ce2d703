"""Leaves out examples without a value of a required feature, and counts them."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from tfx_distribute.trainer_module.errors import DataError

Batch: TypeAlias = pa.RecordBatch | list[bytes]  # or serialized tf.Examples


@dataclass
class Counts:
    """Counts the examples of some data.

    Attributes:
      without: Required feature -> examples without a value of it.
    """

    total: int = 0
    left_out: int = 0
    without: Counter[str] = field(default_factory=Counter)

    def describe(self) -> str:
        """Describes in one line what was left out; empty for nothing.

        Raises a DataError if all examples lack a feature.
        """
        for name, count in self.without.items():
            if count and count == self.total:
                raise DataError(f"require: none of the {count:,} examples has a value of {name!r}; write another feature")
        features = ", ".join(f"{name} ({count:,})" for name, count in self.without.items() if count)
        return features and f"{self.left_out:,} of {self.total:,} examples without a value of {features}"


def select(batch: Batch, names: Sequence[str], counts: Counts) -> Batch:
    """Returns the examples of a batch that have a value of each feature.

    Counts all examples, and the others, in `counts`.
    """
    if not names:
        return batch
    columns = batch if isinstance(batch, pa.RecordBatch) else ExamplesToRecordBatchDecoder().DecodeBatch(batch)
    present = [_has_values(columns, name) for name in names]
    is_kept = np.logical_and.reduce(present)
    counts.total += len(is_kept)
    counts.left_out += int(np.count_nonzero(~is_kept))
    for name, is_present in zip(names, present, strict=True):
        counts.without[name] += int(np.count_nonzero(~is_present))
    if isinstance(batch, pa.RecordBatch):
        return batch.filter(pa.array(is_kept))
    return [record for record, keep in zip(batch, is_kept, strict=True) if keep]


def _has_values(columns: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    position = columns.schema.get_field_index(name)
    if position < 0 or pa.types.is_null(columns.column(position).type):
        return np.zeros(columns.num_rows, bool)
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.list_value_length(columns.column(position)), 0).to_numpy()
    return lengths > 0


def save(parts: Iterable[Counts], file: str) -> None:
    """Writes the counts of the parts of the data to a file."""
    with tf.io.gfile.GFile(file, "w") as stream:
        stream.write(json.dumps([vars(part) for part in parts]))


def load(file: str) -> Counts:
    """Adds up the counts that `save` has written."""
    counts = Counts()
    with tf.io.gfile.GFile(file) as stream:
        for part in json.loads(stream.read()):
            counts.total += part["total"]
            counts.left_out += part["left_out"]
            counts.without.update(part["without"])
    return counts
