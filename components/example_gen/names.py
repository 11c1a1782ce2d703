"""Names data files, tables, columns and splits."""

from collections.abc import Mapping, Sequence

from tfx_distribute.trainer_module.errors import DataError

ALL_FILES = "*"  # pattern of an input split: every data file of the folder
FORMAT = "format"  # execution property: format of the data, see `formats.FORMATS`
REQUIRE = "require"  # execution property: names of required features, as JSON
# Execution properties: path of a curated schema, and the types that it has, as JSON.
SCHEMA_FILE, COLUMN_TYPES = "schema_file", "column_types"
LEFT_OUT = "left_out"  # property of examples: how many of them were left out, as text
# Execution properties: which spans to read, as JSON, and the last of them.
WINDOW, LAST_SPAN = "window", "last_span"
# Parameter of steps on a platform: the scheduled time of the run, as in RFC 3339.
SCHEDULED_AT = "scheduled_at"
SPANS = "spans"  # property of examples: the spans that were read, as text
NEWEST_SPAN = "newest_span"  # property of examples: the last of these
_SHOWN = {SPANS: "spans", LEFT_OUT: "left out"}

BEYOND_FLOAT32 = "is beyond the range of float32, which a tf.Example holds; scale the column"


class DifferentColumnsError(DataError):
    """Two files have other columns."""


def describe_examples(properties: Mapping[str, object]) -> dict[str, str]:
    """Describes, by title, the spans of examples and how many were left out, if any.

    `properties` are the custom properties of the artifact.
    """
    return {shown: str(properties[name]) for name, shown in _SHOWN.items() if properties.get(name)}


def describe_empty_split(name: str) -> str:
    """Returns the error message about a split without examples."""
    return f"examples: the split {name!r} is empty; give it a larger share of the data (equal examples are all in one split)"


def describe_difference(columns: Sequence[str], expected: Sequence[str]) -> str:
    """Describes how the columns of a file differ from those of the first file."""
    missing = [name for name in expected if name not in columns]
    extra = [name for name in columns if name not in expected]
    parts = [f"it lacks {', '.join(missing)}"] * bool(missing) + [f"it adds {', '.join(extra)}"] * bool(extra)
    return " and ".join(parts) or "it has them in another order"


def is_data_file(name: str) -> bool:
    """Returns False for hidden files and markers, such as `.a.crc` and `_SUCCESS`."""
    return not name.startswith((".", "_"))
