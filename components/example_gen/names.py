"""Tells data files from others by their names, as Hadoop and Spark do."""

from collections.abc import Iterable

ALL_FILES = "*"  # pattern of an input split that means every data file of the folder

# Files that a table's log has dropped stay in its folder, with rows that were deleted or overwritten.
_TABLE_LOGS = {
    "_delta_log": "a Delta table",
    ".hoodie": "a Hudi table",
    "_spark_metadata": "the output of a Spark streaming query",
}


def is_data_file(name: str) -> bool:
    """Returns False for hidden files and markers, such as `.a.crc` and `_SUCCESS`."""
    return not name.startswith((".", "_"))


def table_refusal(folder: str, names: Iterable[str]) -> str | None:
    """Returns why the files of a folder must not be read by themselves; None if they may.

    Args:
      folder: The folder, for the message.
      names: All names in it; those of folders may end in a slash.
    """
    for log in sorted(_TABLE_LOGS.keys() & {name.rstrip("/") for name in names}):
        return (
            f"{folder} is {_TABLE_LOGS[log]}: its log in {log} says which files and rows count; export it to a folder of "
            "plain files, and name that folder"
        )
    return None
