"""Makes examples, files of them, and their schemas."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def make_example(**features: Any) -> bytes:
    """Returns a serialized `tf.train.Example`.

    Args:
      **features: Name -> a value, or a list or array of values: texts, bytes, whole
        numbers or others.
    """
    message = {}
    for name, value in features.items():
        if isinstance(value, (np.ndarray, np.generic)):  # which may be empty
            kind, values = value.dtype.kind, value.ravel().tolist()
        else:
            values = value if isinstance(value, list) else [value]
            kind = {int: "i", str: "O", bytes: "O"}.get(type(values[0]), "f")
        if kind in "iu":
            message[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        elif kind == "f":
            message[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            texts = [text.encode() if isinstance(text, str) else text for text in values]
            message[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    return tf.train.Example(features=tf.train.Features(feature=message)).SerializeToString()


def write_examples(path: Path, examples: Iterable[bytes], compression: str = "") -> None:
    """Writes serialized examples as TFRecords."""
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type=compression)) as writer:
        for example in examples:
            writer.write(example)


def make_schema(**features: tuple[str, int]) -> str:
    """Returns a schema, as text, of dense features: name -> type and size."""
    return "".join(
        f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} shape {{ dim {{ size: {size} }} }} }}\n'
        for name, (kind, size) in features.items()
    )
