"""Encodes record batches as tf.Examples: equal content as equal bytes.

The features of a tf.Example are a map, whose entries protobuf writes in any order. Here
they are in the order of their names, and written a column at a time. A feature's values
follow its name and some lengths, which depend only on the size of the values:
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tfx_distribute.trainer_module.errors import ConfigurationError

_NO_BYTES = pa.scalar(b"", pa.large_binary())
# Tags of fields with a length. Field 1: a tf.Example's `features`, an entry of their
# map and its key, `bytes_list`, and the values of each list. The others as named.
_FIELD_1, _ENTRY_VALUE, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x12", b"\x1a"
_NO_LIST = -1  # in place of a size: the feature has no list of values


def encode(batch: pa.RecordBatch) -> list[bytes]:
    """Returns each row of a batch as a serialized tf.Example."""
    parts: list[pa.Array] = []
    for name, column in sorted(zip(batch.schema.names, batch.columns, strict=True), key=lambda pair: pair[0]):
        parts += _encode_column(name, column)
    features = pc.binary_join_element_wise(*parts, _NO_BYTES)
    sizes = pc.binary_length(features)
    headers = _map_unique(sizes, lambda size: _FIELD_1 + _varint(size))
    return pc.binary_join_element_wise(headers, features, _NO_BYTES).to_pylist()


def _encode_column(name: str, column: pa.Array) -> Iterator[pa.Array]:
    """Yields arrays that, joined row by row, are a feature in each row's map."""
    encoded = name.encode()
    key = _FIELD_1 + _varint(len(encoded)) + encoded
    if pa.types.is_null(column.type):
        yield pa.array([_header(key, b"", b"", _NO_LIST)] * len(column), pa.large_binary())
        return
    values = column.flatten()
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        raise ConfigurationError(
            f"the feature {name!r} is a list of lists, which the Sharder cannot write; make it in decode_features"
        )
    if pa.types.is_int64(values.type):
        list_tag, packed_tag = _INT64_LIST, _FIELD_1
        content, sizes = _varints(values.to_numpy())
    elif pa.types.is_float32(values.type):
        list_tag, packed_tag = _FLOAT_LIST, _FIELD_1
        content, sizes = values.to_numpy(), np.full(len(values), 4)
    else:
        list_tag, packed_tag = _FIELD_1, b""  # each text has a tag of its own
        values = values.cast(pa.large_binary())
        headers = _map_unique(pc.binary_length(values), lambda size: _FIELD_1 + _varint(size))
        values = pc.binary_join_element_wise(headers, values, _NO_BYTES)
        content, sizes = values.buffers()[2], pc.binary_length(values).to_numpy()
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = cumulative(sizes)[cumulative(counts)]  # of each row's values
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"") if content is None else pa.py_buffer(content)]
    row_sizes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NO_LIST, np.diff(ends))
    yield _map_unique(pa.array(row_sizes), lambda size: _header(key, list_tag, packed_tag, size))
    yield pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(column), buffers)


def _header(key: bytes, list_tag: bytes, packed_tag: bytes, size: int) -> bytes:
    """Returns what precedes the values of a feature, which have `size` bytes."""
    header = b""
    if size > 0 and packed_tag:
        header = packed_tag + _varint(size)
    if size != _NO_LIST:
        header = list_tag + _varint(len(header) + size) + header
    size = max(size, 0)
    header = key + _ENTRY_VALUE + _varint(len(header) + size) + header
    return _FIELD_1 + _varint(len(header) + size) + header


def _varints(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Encodes integers in groups of 7 bits, the lowest first.

    Returns the bytes of all numbers, and the number of bytes of each.
    """
    unsigned = numbers.view(np.uint64)
    width = -(-int(unsigned.max(initial=1)).bit_length() // 7)
    groups = unsigned[:, None] >> np.arange(0, 7 * width, 7, dtype=np.uint64)
    more = groups > 0x7F
    is_used = np.ones(groups.shape, bool)
    is_used[:, 1:] = more[:, :-1]
    return (groups & 0x7F | more * np.uint64(0x80)).astype(np.uint8)[is_used], is_used.sum(axis=1)


def _map_unique(sizes: pa.Array, encode: Callable[[int], bytes]) -> pa.Array:
    """Returns what a function makes of each size; it is called once for each value."""
    unique = sizes.dictionary_encode()
    return pa.array(map(encode, unique.dictionary.to_pylist()), pa.large_binary()).take(unique.indices)


def cumulative(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns 0 and the running totals of sizes. Shape [len(sizes) + 1]."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
