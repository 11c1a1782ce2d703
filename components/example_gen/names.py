"""Tells data files from others by their names, as Hadoop and Spark do."""

ALL_FILES = "*"  # pattern of an input split that means every data file of the folder


def is_data_file(name: str) -> bool:
    """Returns False for hidden files and markers, such as `.a.crc` and `_SUCCESS`."""
    return not name.startswith((".", "_"))
