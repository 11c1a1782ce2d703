"""Describes the formats of data: which files are read, and which columns they have.

What needs pyarrow is imported when it is needed, so that `validate` can use this.
"""

import itertools
import os
from collections.abc import Sequence

from tfx_distribute.components.example_gen import csv_rows, files
from tfx_distribute.components.example_gen.names import ALL_FILES, is_data_file
from tfx_distribute.trainer_module.errors import DataError

# Logs of tables of Delta, Hudi and Spark's streaming queries. Files that a log has
# dropped stay in the table's folder, with rows that were deleted or overwritten.
_TABLE_LOGS = {"_delta_log", ".hoodie", "_spark_metadata"}


class Format:
    """A format of data files; this class itself is TFRecord."""

    def list_files(self, path: str, pattern: str = ALL_FILES) -> list[str]:
        """Returns what is divided among processes: the data files of a split, sorted.

        `path` is a file or a folder. `pattern` is `*` for all data files of the folder;
        anything else is the name of one file or folder in it, taken literally.
        """
        if pattern != ALL_FILES:
            path = os.path.join(path, pattern)
        if not files.is_folder(path):
            if not files.exists(path):
                raise DataError(f"{path} does not exist")
            return [path]
        names = files.list_names(path)
        for log in _TABLE_LOGS & {*names}:
            raise DataError(
                f"{path} is a table whose log in {log} says which files and rows count; export it to a folder of plain "
                "files, and name that folder"
            )
        found = [os.path.join(path, name) for name in sorted(names) if is_data_file(name)]
        if not found:
            raise DataError(f"the folder {path} holds no data files")
        for file in found:
            if files.is_folder(file):
                raise DataError(f"{file} is a folder; the files have to be directly in {path}")
        return found

    def contents(self, path: str, pattern: str) -> Sequence[tuple[str, str]]:
        """Returns the files of a split, each with the name that is in the examples."""
        return [(file, "") for file in self.list_files(path, pattern)]

    def columns(self, splits: Sequence[Sequence[str]], may_differ: bool = False) -> Sequence[str] | None:
        """Checks that files go together, and returns the names of their columns.

        With `may_differ`, some files may lack columns of others. Returns the columns
        that all splits have; None if only the examples tell.
        """
        return None


class _Csv(Format):
    def columns(self, splits: Sequence[Sequence[str]], may_differ: bool = False) -> Sequence[str]:
        return _in_all([csv_rows.list_columns(listed, may_differ) for listed in splits])


class _Parquet(Format):
    def columns(self, splits: Sequence[Sequence[str]], may_differ: bool = False) -> Sequence[str]:
        from tfx_distribute.components.example_gen import parquet_columns

        return list(parquet_columns.inspect([*itertools.chain(*splits)], may_differ))


class _Images(Format):
    """Folders of images: `list_files` returns the folder of a split."""

    def list_files(self, path: str, pattern: str = ALL_FILES) -> list[str]:
        return [path if pattern == ALL_FILES else os.path.join(path, pattern)]

    def contents(self, path: str, pattern: str) -> Sequence[tuple[str, str]]:
        from tfx_distribute.components.example_gen import images

        (folder,) = self.list_files(path, pattern)
        return [(os.path.join(folder, file), file) for file in images.list_files(folder)]

    def columns(self, splits: Sequence[Sequence[str]], may_differ: bool = False) -> Sequence[str]:
        from tfx_distribute.components.example_gen import images

        return _in_all([images.check(folder) for folder in itertools.chain(*splits)])


def _in_all(columns: Sequence[Sequence[str]]) -> list[str]:
    """Returns the names that every split or folder has, in the order of the first."""
    return [name for name in columns[0] if all(name in others for others in columns)]


FORMATS: dict[str, Format] = {"csv": _Csv(), "parquet": _Parquet(), "tfrecord": Format(), "images": _Images()}
"""Key in a pipeline file -> format."""
