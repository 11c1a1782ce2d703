"""Takes over rows of a weight entry by entry, from one vocabulary to another.

Transform writes the entries of a vocabulary in the order of their frequency, so a row
may be another entry's after a run on new data, even if the number of rows is the same.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import layer_patterns
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.state.base_model.location import SAVED_MODEL, Location
from tfx_distribute.trainer_module.state.base_model.sources import SourceWeight
from tfx_distribute.trainer_module.state.base_model.target_weights import TargetWeight

_RESERVED = -1  # Transform's frequency of reserved entries


class RowTransfers:
    """The weights whose rows are entries of vocabularies.

    Args:
      rules: Value of the parameter `base_model_vocabularies`.
      base_model: The base model, whose assets hold its vocabularies.
      transform_output: The transform graph of the training's examples; None for none.

    Attributes:
      entries_taken: Number of entries whose rows were taken over so far.
      entries_new: Number of entries that the base model does not have, so far.

    Raises:
      ConfigurationError: One of the models has no such vocabulary.
    """

    def __init__(self, rules: str, base_model: Location, transform_output: Any):
        self._rules = layer_patterns.parse_vocabularies(rules)
        self._entries = {name: _read_both(name, base_model, transform_output) for _, name, _ in self._rules}
        self.entries_taken = self.entries_new = 0

    def check(self, targets: Sequence[TargetWeight]) -> None:
        """Checks that each rule matches a weight.

        Raises:
          ConfigurationError: A rule matches none.
        """
        for pattern, name, _ in self._rules:
            if not any(pattern.search(target.path) for target in targets):
                raise ConfigurationError(
                    f"base_model_vocabularies: no weight matches the rule for {name!r}; the model has "
                    f"{', '.join(target.path for target in targets)}"
                )

    def covers(self, target: TargetWeight, source: SourceWeight) -> bool:
        """Returns True if a pair's rows belong to a vocabulary, and fit otherwise."""
        return self._find(target) is not None and target.shape[1:] == source.shape[1:] and bool(target.shape)

    def transfer(self, target: TargetWeight, value: np.ndarray) -> np.ndarray:
        """Returns the target's value with the rows of known entries replaced.

        Rows before and after those of the vocabulary, for padding and for entries
        outside of it, are taken over one by one.

        Args:
          target: The weight, with its initial value.
          value: Its value in the base model.

        Raises:
          ConfigurationError: A weight has fewer rows than its vocabulary has entries.
        """
        rule = self._find(target)
        assert rule is not None, "the caller asks covers()"
        name, first = rule
        old, new = self._entries[name]
        for entries, num_rows, owner in ((old, len(value), "base model"), (new, target.shape[0], "model")):
            if num_rows < first + len(entries):
                raise ConfigurationError(
                    f"base_model_vocabularies: {target.path} has {num_rows} rows in the {owner}, but its vocabulary "
                    f"{name!r} has {len(entries)} entries{f' from row {first} on' if first else ''}; name the vocabulary "
                    "that the rows are of"
                )
        rows = target.read()
        old_row = {entry: row for row, entry in enumerate(old, first)}
        known = [(row, old_row[entry]) for row, entry in enumerate(new, first) if entry in old_row]
        if old and new and not known:
            raise ConfigurationError(
                f"base_model_vocabularies: no entry of the vocabulary {name!r} is in that of the base model; leave the rule "
                "out to train these rows from scratch with base_model_mismatch=skip"
            )
        LOGGER.info(
            "base_model_vocabularies: %s: %d of %d entries of %r are known, whose rows start at %d",
            *(target.path, len(known), len(new), name, first),
        )
        self.entries_taken += len(known)
        self.entries_new += len(new) - len(known)
        known += [(row, row) for row in range(first)]
        old_end, new_end = first + len(old), first + len(new)
        known += [(new_end + number, old_end + number) for number in range(min(len(value) - old_end, len(rows) - new_end))]
        if known:
            to, origin = zip(*known, strict=True)
            rows[list(to)] = value[list(origin)]
        return rows

    def _find(self, target: TargetWeight) -> tuple[str, int] | None:
        """Returns the vocabulary of a weight, and the row of its first entry."""
        return next(((name, first) for pattern, name, first in self._rules if pattern.search(target.path)), None)


def _read_both(name: str, base_model: Location, transform_output: Any) -> tuple[list[bytes], list[bytes]]:
    """Returns the entries of a vocabulary in the base model and in the transform."""
    if transform_output is None:
        raise ConfigurationError(
            "base_model_vocabularies: the pipeline has no transform, which would have vocabularies; leave it out"
        )
    if base_model.kind != SAVED_MODEL:
        raise ConfigurationError(
            f"base_model_vocabularies: {base_model.path} is a {base_model.kind}, which has no vocabularies; write the "
            "SavedModel that a pipeline made"
        )
    try:
        new_file = transform_output.vocabulary_file_by_name(name)
    except (ValueError, KeyError):
        new_file = None
    if not new_file:
        raise ConfigurationError(f"base_model_vocabularies: the transform has no vocabulary {name!r}; write the name of one")
    old_file = f"{base_model.assets}/{new_file.rpartition('/')[2]}"
    if not tf.io.gfile.exists(old_file):
        assets = tf.io.gfile.listdir(base_model.assets) if tf.io.gfile.isdir(base_model.assets) else []
        raise ConfigurationError(
            f"base_model_vocabularies: {base_model.path} has no vocabulary {name!r}; it has "
            f"{', '.join(sorted(assets)) or 'none'}"
        )
    return _strip_frequencies(list(_read(old_file))), _strip_frequencies(list(_read(new_file)))


def _strip_frequencies(lines: list[bytes]) -> list[bytes]:
    """Removes the frequencies that Transform writes with `store_frequency=True`.

    The files do not say that they have them. In a file with frequencies, every line
    starts with one, and they fall; reserved entries are the first. Transform writes
    `__SPACE__` for spaces there.
    """
    frequencies, entries = [], []
    for line in lines:
        number, _, entry = line.partition(b" ")
        if not entry or not re.fullmatch(rb"-?\d+(\.\d+)?(e[+-]?\d+)?", number):
            return lines
        frequencies.append(float(number))
        entries.append(entry.replace(b"__SPACE__", b" "))
    counted = list(itertools.dropwhile(lambda frequency: frequency == _RESERVED, frequencies))
    has_frequencies = counted == sorted(counted, reverse=True) and len(set(entries)) == len(entries)
    return entries if has_frequencies else lines


def _read(file: str) -> Iterator[bytes]:
    if file.endswith((".tfrecord.gz", ".gz")):
        for record in tf.data.TFRecordDataset(file, compression_type="GZIP").as_numpy_iterator():
            yield bytes(record)
        return
    with tf.io.gfile.GFile(file, "rb") as stream:
        yield from (line.rstrip(b"\r\n") for line in bytes(stream.read()).splitlines(keepends=True))
