"""Names of data files: which files of a folder are data, as TFX, Hadoop and Spark agree on it."""

ALL_FILES = "*"  # pattern of an input split that means every data file of the folder


def is_data_file(name: str) -> bool:
    """Returns False for hidden files and markers, such as `.DS_Store`, `.part-0.crc` and `_SUCCESS`."""
    return not name.startswith((".", "_"))
