"""Makes requests to an exported model from raw examples."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tfx_distribute.trainer_module.data import tfrecords

MAX_EXAMPLES = 16
MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
      name: Description for messages.
      examples: Serialized tf.Examples.
      row: The example of the first request that it consists of; None if it is changed.
    """

    name: str
    examples: tuple[bytes, ...]
    row: int | None = None


def read_examples(files: Sequence[str], count: int = MAX_EXAMPLES) -> list[bytes]:
    """Returns the first examples of files: `count`, and not many bytes."""
    examples: list[bytes] = []
    for record in itertools.chain.from_iterable(map(tfrecords.scan, files)):
        is_enough = len(examples) == count or sum(map(len, examples)) > MAX_BYTES
        if is_enough or not isinstance(record, bytes):
            break
        examples.append(record)
    return examples


def make(examples: Sequence[bytes], without: Sequence[str] = (), optional: Sequence[str] = ()) -> list[Request]:
    """Makes requests: all examples, each alone, and one without each optional feature.

    `without` names labels and weights, which requests do not have, and `optional`
    features that an example need not have.
    """
    stripped = [_without(example, without) for example in examples]
    alone = [Request(f"example {row} alone", (example,), row) for row, example in enumerate(stripped)]
    lacking = [Request(f"an example without {name}", (_without(stripped[0], [name]),)) for name in optional]
    return [Request("all examples together", tuple(stripped)), *alone, *lacking]


def _without(serialized: bytes, names: Sequence[str]) -> bytes:
    example = tf.train.Example.FromString(serialized)
    for name in names:
        example.features.feature.pop(name, None)
    return example.SerializeToString()
