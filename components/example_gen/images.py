"""Reads folders of images: the files as they are, with labels or the rows of a table.

The label of an image is the name of its folder. With a `metadata.csv` in the folder of
all images, they have its columns instead, and its column `file_name` says which row is
whose; this is how Hugging Face's `imagefolder` has it.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tfx_distribute.components.example_gen import csv_columns, image_files
from tfx_distribute.components.example_gen.data_files import to_batches
from tfx_distribute.components.example_gen.files import open_file
from tfx_distribute.components.example_gen.image_files import FILE_NAME, IMAGE, LABEL, METADATA
from tfx_distribute.trainer_module.errors import DataError

# First bytes of each kind of image, and bytes of its end; empty if it may lack one.
_SIGNATURES = (
    (b"\xff\xd8\xff", b"\xff\xd9"),
    (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
    (b"GIF8", b""),
    (b"BM", b""),
)
_SCAN = b"\xff\xda"  # of a JPEG file; a thumbnail before the last one has an end of its own


def read(folder: str, number: int, num_parts: int) -> Iterator[pa.RecordBatch]:
    """Reads every `num_parts`-th image of a folder, starting with `number`."""
    rows = _read_rows(folder)
    rows = rows.take(pa.array(range(number, rows.num_rows, num_parts), pa.int64()))
    files = rows.column(rows.schema.get_field_index(FILE_NAME)).flatten().to_pylist()
    first = 0
    for images in to_batches(_read_image(os.path.join(folder, file.decode())) for file in files):
        part = rows.slice(first, len(images))
        columns = {name: column for name, column in zip(part.schema.names, part.columns, strict=True) if name != FILE_NAME}
        yield pa.RecordBatch.from_arrays([*columns.values(), _to_lists(images)], [*columns, IMAGE])
        first += len(images)


def _read_rows(folder: str) -> pa.RecordBatch:
    """Returns the columns of all images, and their paths in the column `file_name`."""
    files = image_files.list_files(folder)
    if METADATA not in files:
        labels = [file.partition("/")[0] for file in files]
        lists = [_to_lists([text.encode() for text in texts]) for texts in (files, labels)]
        return pa.RecordBatch.from_arrays(lists, [FILE_NAME, LABEL])
    table = os.path.join(folder, METADATA)
    types = csv_columns.read_types(table, 0, 1)
    (rows,) = pa.Table.from_batches(csv_columns.read(table, 0, 1, types)).combine_chunks().to_batches()
    return rows


def _read_image(file: str) -> bytes:
    with open_file(file) as stream:
        content: bytes = stream.read()
    end_from = max(0, content.rfind(_SCAN))
    if not any(content.startswith(start) and content.find(end, end_from) >= 0 for start, end in _SIGNATURES):
        raise DataError(f"{file} is not a JPEG, PNG, GIF or BMP file, or is cut off; replace or remove it")
    return content


def _to_lists(values: Sequence[bytes]) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(np.arange(len(values) + 1)), pa.array(values, pa.large_binary()))
