"""Encodes record batches as tf.Examples: equal content as equal bytes.

The features of a tf.Example are a map, whose entries protobuf writes in any order. So
each feature is encoded by itself, and the results are joined in the order of their
names, which the wire format allows:
https://protobuf.dev/programming-guides/encoding/
"""

import pyarrow as pa
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public import tfxio

# Tag of field 1 with a length: `features` in a tf.Example, and each entry of its map.
FIELD_1 = b"\x0a"


class Encoder:
    """Encodes record batches.

    Args:
      schema: The schema of the examples.
    """

    def __init__(self, schema: schema_pb2.Schema):
        self._encoder = tfxio.RecordBatchToExamplesEncoder(schema)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """Returns each row of a batch as a serialized tf.Example."""
        columns = []
        for name, column in sorted(zip(batch.schema.names, batch.columns, strict=True), key=lambda pair: pair[0]):
            encoded = self._encoder.encode(pa.RecordBatch.from_arrays([column], [name]))
            if _is_nested(column.type):  # one column becomes several features
                encoded = [tf.train.Example.FromString(row).SerializeToString(deterministic=True) for row in encoded]
            columns.append([_unwrap(row) for row in encoded])
        features = map(b"".join, zip(*columns, strict=True))
        return [FIELD_1 + _varint(len(row)) + row for row in features]


def _is_nested(column_type: pa.DataType) -> bool:
    def is_list(data_type: pa.DataType) -> bool:
        return pa.types.is_list(data_type) or pa.types.is_large_list(data_type)

    return is_list(column_type) and is_list(column_type.value_type)


def _unwrap(message: bytes) -> bytes:
    """Returns the content of a message's only field."""
    length_end = 1
    while message[length_end] & 0x80:
        length_end += 1
    return message[length_end + 1 :]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
