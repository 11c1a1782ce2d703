"""Makes requests to an exported model from raw examples."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    """Returns the first examples of TFRecord files: `count`, and not many bytes.

    Files may be gzipped. Damaged records, and those after them, are left out.
    """
    examples: list[bytes] = []
    for record in itertools.chain.from_iterable(map(tfrecords.scan, files)):
        is_enough = len(examples) == count or sum(map(len, examples)) > MAX_BYTES
        if is_enough or not isinstance(record, bytes):
            break
        examples.append(record)
    return examples


def make(examples: Sequence[bytes], without: Sequence[str] = (), optional: Sequence[str] = ()) -> list[Request]:
    """Makes requests: all examples, each alone, and one without each optional feature.

    ```python
    make(examples, without=["species"], optional=["bonus"])
    ```

    Takes at least one example. `without` names labels and weights, which requests do
    not have, and `optional` features that an example need not have.
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


def as_tensors(request: Request, inputs: Mapping[str, tf.TensorSpec]) -> dict[str, tf.Tensor] | None:
    """Returns the arguments of a signature for a request.

    `inputs` are the signature's arguments: one vector of serialized tf.Examples, or a
    tensor for each feature. Returns None if an example lacks a feature that is asked
    for, or has values of another type or number.
    """
    if len(inputs) == 1:
        ((name, spec),) = inputs.items()
        if spec.dtype == tf.string and spec.shape.rank in (None, 1):
            return {name: tf.constant(request.examples)}
    rows = [tf.train.Example.FromString(example).features.feature for example in request.examples]
    try:
        return {name: _batch([row[name] for row in rows], spec) for name, spec in inputs.items()}
    except (TypeError, ValueError):
        return None


def _batch(features: Sequence[Any], spec: tf.TensorSpec) -> tf.Tensor:
    values = [getattr(feature, feature.WhichOneof("kind")).value for feature in features]
    shape = [-1 if size is None else size for size in spec.shape[1:]]
    return tf.constant(np.stack([np.reshape(np.array(row, spec.dtype.as_numpy_dtype), shape) for row in values]), spec.dtype)
