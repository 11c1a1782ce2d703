"""Record batches -> serialized tf.Examples, of the same content the same bytes.

Protobuf writes the entries of a map, which the features of a tf.Example are, in any order. So each feature is encoded by
itself, and they are put together in the order of their names, as the wire format allows:
https://protobuf.dev/programming-guides/encoding/
"""

import pyarrow as pa
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public import tfxio

FIELD_1 = b"\x0a"  # tag of `features` in a tf.Example, and of an entry in its map: field 1, with a length


class Encoder:
    """Encodes record batches.

    Args:
      schema: The schema of the examples.
    """

    def __init__(self, schema: schema_pb2.Schema):
        self._encoder = tfxio.RecordBatchToExamplesEncoder(schema)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The rows of a batch."""
        columns = []
        for name, column in sorted(zip(batch.schema.names, batch.columns, strict=True), key=lambda pair: pair[0]):
            encoded = self._encoder.encode(pa.RecordBatch.from_arrays([column], [name]))
            if _is_nested(column.type):  # several features of one column
                encoded = [tf.train.Example.FromString(row).SerializeToString(deterministic=True) for row in encoded]
            columns.append([_content(row) for row in encoded])
        features = map(b"".join, zip(*columns, strict=True))
        return [FIELD_1 + _varint(len(row)) + row for row in features]


def _is_nested(of: pa.DataType) -> bool:
    def is_list(what: pa.DataType) -> bool:
        return pa.types.is_list(what) or pa.types.is_large_list(what)

    return is_list(of) and is_list(of.value_type)


def _content(message: bytes) -> bytes:
    """What is in the only field of a message."""
    length_end = 1
    while message[length_end] & 0x80:
        length_end += 1
    return message[length_end + 1 :]


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
