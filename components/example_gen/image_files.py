"""Lists the images of a folder, and checks that each has a class or a row of a table.

Imports nothing heavy.
"""

import os
from collections.abc import Collection

from tfx_distribute.components.example_gen import csv_rows, files
from tfx_distribute.components.example_gen.names import is_data_file
from tfx_distribute.trainer_module.errors import DataError

METADATA, FILE_NAME = "metadata.csv", "file_name"  # the table, and its column with paths
IMAGE, LABEL = "image", "label"
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")  # of what tf.io.decode_image reads

_ADVICE = f"write a folder that holds a folder for each class, or a {METADATA} with a column {FILE_NAME!r}"


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
