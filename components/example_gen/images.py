"""Reads folders of images: the files as they are, with labels or the rows of a table.

The label of an image is the name of its folder. With a `metadata.csv` in the folder of
all images, they have its columns instead, and its column `file_name` says which row is
whose; this is how Hugging Face's `imagefolder` has it.

Imports TensorFlow only to read, so that `validate` can use this.
"""

import os
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from tfx_distribute.components.example_gen import csv_rows, files
from tfx_distribute.components.example_gen.names import is_data_file
from tfx_distribute.trainer_module.errors import DataError

METADATA, FILE_NAME = "metadata.csv", "file_name"  # the table, and its column with paths
IMAGE, LABEL = "image", "label"
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")  # of what tf.io.decode_image reads

_ADVICE = f"write a folder that holds a folder for each class, or a {METADATA} with a column {FILE_NAME!r}"
# First bytes of each kind of image, and bytes of its end; empty if it may lack one.
_SIGNATURES = (
    (b"\xff\xd8\xff", b"\xff\xd9"),
    (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"),
    (b"GIF8", b""),
    (b"BM", b""),
)
_SCAN = b"\xff\xda"  # of a JPEG file; a thumbnail before the last one has an end of its own


def list_files(folder: str) -> list[str]:
    """Returns the relative paths of all images and of `metadata.csv`, sorted."""
    if not files.is_folder(folder):
        raise DataError(f"{folder} is not a folder, or is not there; {_ADVICE}")
    found, folders = [], [""]
    while folders:
        parent = folders.pop()
        for name in files.list_names(os.path.join(folder, parent)):
            path = f"{parent}{name}"
            if not is_data_file(name):
                continue
            if path == METADATA or path.lower().endswith(SUFFIXES):
                found.append(path)
            elif files.is_folder(os.path.join(folder, path)):
                folders.append(f"{path}/")
            else:
                raise DataError(
                    f"{os.path.join(folder, path)} is not an image: its name does not end in one of {', '.join(SUFFIXES)}; "
                    "convert or remove it"
                )
    return sorted(found)


def check(folder: str) -> list[str]:
    """Checks that each image has a class or a row; returns the features' names."""
    listed = list_files(folder)
    images = {file for file in listed if file != METADATA}
    if METADATA in listed:
        return _check_metadata(folder, images)
    for file in sorted(images):
        if file.count("/") != 1:
            raise DataError(f"{os.path.join(folder, file)} is not directly in the folder of a class; {_ADVICE}")
    classes = {file.partition("/")[0] for file in images}
    if len(classes) < 2:
        problem = f"has only one class, {min(classes)}" if classes else "holds no images"
        raise DataError(f"{folder} {problem}; {_ADVICE}")
    return [IMAGE, LABEL]


def _check_metadata(folder: str, images: Collection[str]) -> list[str]:
    table = os.path.join(folder, METADATA)
    named = set()
    with files.open_file(table) as stream:
        columns, rows = csv_rows.read(stream, table)
        if FILE_NAME not in columns:
            raise DataError(f"{table} has no column {FILE_NAME!r}, the path of an image; it has {', '.join(columns)}")
        if IMAGE in columns:
            raise DataError(f"{table}: column {IMAGE!r} has the name that the images get; rename it")
        for line, cells in rows:
            file = cells[columns.index(FILE_NAME)]
            if file not in images:
                raise DataError(
                    f"{table}, line {line}: {FILE_NAME} is {file!r}, and there is no such image; write its path in {folder}"
                )
            named.add(file)
    if unnamed := sorted({*images} - named):
        raise DataError(f"{table} has no row for {unnamed[0]}; write one, or remove the image")
    if not named:
        raise DataError(f"{table} has no rows; write one for each image")
    return [IMAGE if name == FILE_NAME else name for name in columns]


def read(folder: str, number: int, num_parts: int) -> Iterator[pa.RecordBatch]:
    """Reads every `num_parts`-th image of a folder, starting with `number`."""
    from tfx_distribute.components.example_gen.records import to_batches

    rows = _read_rows(folder)
    rows = rows.take(pa.array(range(number, rows.num_rows, num_parts), pa.int64()))
    paths = rows.column(rows.schema.get_field_index(FILE_NAME)).flatten().to_pylist()
    first = 0
    for images in to_batches(_read_image(os.path.join(folder, path.decode())) for path in paths):
        part = rows.slice(first, len(images))
        columns = {name: column for name, column in zip(part.schema.names, part.columns, strict=True) if name != FILE_NAME}
        yield pa.RecordBatch.from_arrays([*columns.values(), _to_lists(images)], [*columns, IMAGE])
        first += len(images)


def _read_rows(folder: str) -> pa.RecordBatch:
    """Returns the columns of all images, and their paths in the column `file_name`."""
    from tfx_distribute.components.example_gen import csv_columns

    paths = list_files(folder)
    if METADATA not in paths:
        labels = [path.partition("/")[0] for path in paths]
        lists = [_to_lists([text.encode() for text in texts]) for texts in (paths, labels)]
        return pa.RecordBatch.from_arrays(lists, [FILE_NAME, LABEL])
    table = os.path.join(folder, METADATA)
    types = csv_columns.read_types(table, 0, 1)
    (rows,) = pa.Table.from_batches(csv_columns.read(table, 0, 1, types)).combine_chunks().to_batches()
    return rows


def _read_image(file: str) -> bytes:
    with files.open_file(file) as stream:
        content: bytes = stream.read()
    end_from = max(0, content.rfind(_SCAN))
    if not any(content.startswith(start) and content.find(end, end_from) >= 0 for start, end in _SIGNATURES):
        raise DataError(f"{file} is not a JPEG, PNG, GIF or BMP file, or is cut off; replace or remove it")
    return content


def _to_lists(values: Sequence[bytes]) -> pa.Array:
    return pa.array([[value] for value in values], pa.large_list(pa.large_binary()))
