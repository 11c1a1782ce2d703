"""Takes over rows of a weight entry by entry, from one vocabulary to another.

Transform writes the entries of a vocabulary in the order of their frequency, so a row
may be another entry's after a run on new data, even if the number of rows is the same.
So may an output of the last layer, if the label is a text.
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError

_RESERVED = -1  # Transform's frequency of reserved entries


@dataclass(frozen=True)
class Vocabularies:
    """The entries that the rows of a weight belong to.

    Attributes:
      old: Entries of the base model's weight.
      new: Entries of the model's weight.
      first: Row of the first entry, in both.
    """

    file: str
    old: list[bytes]
    new: list[bytes]
    first: int

    def find_axis(self, name: str, shape: Sequence[int], base_shape: Sequence[int]) -> int | None:
        """Returns the dimension of a weight that the entries belong to, if any.

        Of a `kernel` or `bias`, it is the last one with exactly as many elements as
        there are entries: its outputs, or else its inputs. Of other weights, such as
        embeddings, it is the first.
        """
        if name not in ("kernel", "bias"):
            return 0
        ends = self.first + len(self.new), self.first + len(self.old)
        fitting = [axis for axis in range(len(shape)) if (shape[axis], base_shape[axis]) == ends]
        return fitting[-1] if fitting else None

    def move_rows(self, path: str, initial: np.ndarray, value: np.ndarray, axis: int) -> np.ndarray:
        """Returns a weight's initial value with the rows of known entries replaced.

        Rows are what the weight has along `axis`. Those before and after the rows of
        the vocabulary, for padding and for entries outside of it, are taken over one by
        one.
        """
        rows, value = np.moveaxis(initial.copy(), axis, 0), np.moveaxis(value, axis, 0)
        old_end, new_end = self.first + len(self.old), self.first + len(self.new)
        for end, num_rows, owner in ((old_end, len(value), "base model"), (new_end, len(rows), "model")):
            if num_rows < end:
                raise ConfigurationError(
                    f"base_model.vocabularies: {path} has {num_rows} rows in the {owner}, but the entries of its vocabulary "
                    f"are rows {self.first} to {end - 1}; name the vocabulary that the rows are of"
                )
        old_row = {entry: row for row, entry in enumerate(self.old, self.first)}
        origins = {row: old_row[entry] for row, entry in enumerate(self.new, self.first) if entry in old_row}
        origins |= {row: row for row in range(self.first)}
        origins |= dict(zip(range(new_end, len(rows)), range(old_end, len(value)), strict=False))
        rows[list(origins)] = value[list(origins.values())]
        return np.moveaxis(rows, 0, axis)


def read(rule: str | Mapping[str, int], base_model: str, transform_output: Any) -> Vocabularies:
    """Reads a vocabulary of the base model and of the training's transform.

    `rule` is a value of `WarmStart.vocabularies`. The assets in the folder `base_model`
    hold its vocabularies.
    """
    name, first = (rule, 0) if isinstance(rule, str) else next(iter(rule.items()))
    try:
        new_file = transform_output.vocabulary_file_by_name(name) if transform_output else None
    except (ValueError, KeyError):
        new_file = None
    if not new_file:
        raise ConfigurationError(f"base_model.vocabularies: no transform has a vocabulary {name!r}; write the name of one")
    assets = f"{base_model}/assets"
    old_file = f"{assets}/{new_file.rpartition('/')[2]}"
    if not tf.io.gfile.exists(old_file):
        names = tf.io.gfile.listdir(assets) if tf.io.gfile.isdir(assets) else []
        raise ConfigurationError(
            f"base_model.vocabularies: {base_model} has no vocabulary {name!r}; it has {', '.join(sorted(names)) or 'none'}"
        )
    return Vocabularies(old_file.rpartition("/")[2], _read_entries(old_file), _read_entries(new_file), first)


def find_reordered(base_model: str, transform_output: Any, named: Collection[str]) -> list[str]:
    """Returns the files, but for `named`, whose order differs from the base model's."""
    old_assets = f"{base_model}/assets"
    if transform_output is None or not tf.io.gfile.isdir(old_assets):
        return []
    new_assets = f"{transform_output.transform_savedmodel_dir}/assets"
    shared = {*tf.io.gfile.listdir(old_assets)} & {*tf.io.gfile.listdir(new_assets)}
    reordered = []
    for file in sorted(shared.difference(named)):
        rows = {entry: row for row, entry in enumerate(_read_entries(f"{new_assets}/{file}"))}
        if any(rows.get(entry, row) != row for row, entry in enumerate(_read_entries(f"{old_assets}/{file}"))):
            reordered.append(file)
    return reordered


def _read_entries(file: str) -> list[bytes]:
    if file.endswith(".gz"):
        lines = list(map(bytes, tf.data.TFRecordDataset(file, compression_type="GZIP").as_numpy_iterator()))
    else:
        with tf.io.gfile.GFile(file, "rb") as stream:
            lines = [line.rstrip(b"\r\n") for line in bytes(stream.read()).splitlines(keepends=True)]
    return _strip_frequencies(lines)


def _strip_frequencies(lines: list[bytes]) -> list[bytes]:
    """Removes the frequencies that Transform writes with `store_frequency=True`.

    The files do not say that they have them. In a file with frequencies, every line
    starts with one, and they fall; reserved entries are the first. Transform writes
    `__SPACE__` for spaces there.
    """
    split = [re.fullmatch(rb"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?) (.+)", line, re.DOTALL) for line in lines]
    frequencies = [float(line[1]) for line in split if line]
    entries = [line[2].replace(b"__SPACE__", b" ") for line in split if line]
    counted = list(itertools.dropwhile(lambda frequency: frequency == _RESERVED, frequencies))
    has_frequencies = counted == sorted(counted, reverse=True) and len({*entries}) == len(lines)
    return entries if has_frequencies else lines
