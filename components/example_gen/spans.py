"""Finds the data of each day, hour or number in paths such as `/data/{YYYY}-{MM}-{DD}`.

The fields are those of TFX's ExampleGens: `{YYYY}`, `{MM}` and `{DD}`, or `{SPAN}`, and
`{VERSION}`, the highest of which is read. With `{HH}`, a span is an hour. A pattern
names a folder or a file; the data of all spans in a window are read together.

The span `scheduled` is the last one that had ended at the scheduled time of a run,
however late the run starts, like Airflow's data intervals:
https://airflow.apache.org/docs/apache-airflow/stable/core-concepts/dag-run.html
"""

import json
import re
import zoneinfo
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from tfx_distribute.components.example_gen import files
from tfx_distribute.trainer_module.errors import ConfigurationError, DataError

SCHEDULED = "scheduled"
"""Name of the last span that had ended at the scheduled time of a run."""

_FIELD = re.compile(r"\{(YYYY|MM|DD|HH|SPAN|VERSION)(?::\d+)?\}")  # TFX's may have a number of digits
_SPANS = (["DD", "MM", "YYYY"], ["DD", "HH", "MM", "YYYY"], ["SPAN"])
_DIGITS = {"YYYY": "[0-9]{4}", "MM": "[0-9]{2}", "DD": "[0-9]{2}", "HH": "[0-9]{2}"}  # of others: any number
_EPOCH = datetime(1970, 1, 1)
_SHOWN = 5


@dataclass(frozen=True)
class Window:
    """Selects spans.

    Attributes:
      size: Number of consecutive spans.
      skip_missing: True if spans inside the window may be missing.
      last: The last span, such as `2026-11-25`, `2026-11-25T07` or `42`; empty for
        the newest that is there, or `scheduled`.
      time_zone: Time zone of dates, such as `Asia/Tokyo`.
      scheduled_at: For `scheduled`, an RFC 3339 time; None for now.
    """

    size: int = 1
    skip_missing: bool = False
    last: str = ""
    time_zone: str = "UTC"
    scheduled_at: str | None = None

    def to_json(self) -> str:
        """Returns the fields that are the same in each run."""
        return json.dumps({"size": self.size, "skip_missing": self.skip_missing, "time_zone": self.time_zone})

    @staticmethod
    def from_json(text: str | None, last: str | None, scheduled_at: str | None = None) -> "Window":
        """Makes a window from the text of `to_json` and what differs between runs."""
        return Window(**json.loads(text or "{}"), last=last or "", scheduled_at=scheduled_at)


@dataclass(frozen=True)
class Chosen:
    """The data of a window.

    Attributes:
      paths: Path of each span, the oldest first.
      names: Names of the spans that were found, such as `2026-11-25`.
      missing: Names of those in the window that are not there.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def describe(self) -> str:
        """Returns the spans in one line; empty for a path without fields."""
        if not self.names:
            return ""
        one = self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]} ({len(self.names)} spans)"
        return f"{one}, without {_shorten(self.missing)}" if self.missing else one


def has_fields(path: str) -> bool:
    """Returns True if a path has fields of a span or version."""
    return bool(_FIELD.search(path))


def before_fields(path: str) -> str:
    """Returns the folder that has the data of all spans; `path` without fields."""
    parts = path.split("/")
    first = next((position for position, part in enumerate(parts) if has_fields(part)), len(parts))
    return path if first == len(parts) else "/".join(parts[:first]) or ("/" if first else ".")


def check_pattern(path: str) -> None:
    """Raises a ConfigurationError if the fields of a path do not identify a span."""
    fields = sorted(_FIELD.findall(path))
    if fields not in _SPANS and fields not in [sorted([*names, "VERSION"]) for names in _SPANS]:
        raise ConfigurationError(
            f"{path}: its fields are not a span; write {{YYYY}}, {{MM}} and {{DD}}, each once, and {{HH}} for hours; or "
            "{SPAN} for a number; and {VERSION} once at most"
        )


def parse(path: str, name: str) -> int:
    """Returns the number of a span, by which spans are ordered.

    Raises a ConfigurationError if `name`, such as `2026-11-25`, or `42` for `{SPAN}`,
    is not a span of this pattern.
    """
    if "{SPAN" in path:
        if name.isascii() and name.isdigit():
            return int(name)
        raise ConfigurationError(f"span: {name!r} is not a span of {path}; write a number")
    try:
        moment = datetime.strptime(name, _date_format(path))
    except ValueError:
        example = f"{datetime(2026, 11, 25, 7):{_date_format(path)}}"
        raise ConfigurationError(f"span: {name!r} is not a span of {path}; write e.g. {example}") from None
    return (moment - _EPOCH) // _step(path)


def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """Returns a time zone, such as `Asia/Tokyo`, or raises a ConfigurationError."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(f"time_zone: {name!r} is not a time zone; write e.g. UTC or Asia/Tokyo") from None


def parse_last(path: str, window: Window) -> int | None:
    """Returns the number of a window's last span; None for the newest."""
    if window.last != SCHEDULED:
        return parse(path, window.last) if window.last else None
    if "{SPAN" in path:
        raise ConfigurationError(f"span: {SCHEDULED!r} needs a path with a date, and {path} has {{SPAN}}; write a number")
    moment = datetime.now(timezone.utc)
    if window.scheduled_at is not None:
        try:
            moment = datetime.fromisoformat(window.scheduled_at.replace("Z", "+00:00"))
        except ValueError:
            raise ConfigurationError(
                f"span: {SCHEDULED!r} needs the scheduled time of the run, which the platform does not provide (it is "
                f"{window.scheduled_at!r}); Kubeflow Pipelines does from version 2.17; write the date of the span"
            ) from None
    local = moment.astimezone(find_zone(window.time_zone)).replace(tzinfo=None)
    return (local - _EPOCH) // _step(path) - 1


def name_of(path: str, number: int) -> str:
    """Returns the name of a span, which `parse` reads."""
    if "{SPAN" in path:
        return str(number)
    return f"{_EPOCH + number * _step(path):{_date_format(path)}}"


def choose(path: str, window: Window) -> Chosen:
    """Finds the data of a window; a path without fields is returned as it is."""
    if not has_fields(path):
        return Chosen((path,))
    check_pattern(path)
    last = parse_last(path, window)
    found = find(path)
    if not found:
        raise DataError(
            f"no data found at {path}; everything except the fields is taken literally, {{MM}} and {{DD}} have two "
            "digits, and several files of a span have to be in a folder"
        )
    if last is not None and last not in found:
        there = _shorten(name_of(path, number) for number in sorted(found))
        raise DataError(f"span {name_of(path, last)} does not exist at {path}; existing spans: {there}")
    end = max(found) if last is None else last
    wanted = range(end - window.size + 1, end + 1)
    missing = tuple(name_of(path, number) for number in wanted if number not in found)
    if missing and not window.skip_missing:
        raise DataError(
            f"{path} has no data of {_shorten(missing)}, which {'is' if len(missing) == 1 else 'are'} in the window of "
            f"{window.size} up to {name_of(path, end)}; add the data, or write data.missing: skip"
        )
    present = [number for number in wanted if number in found]
    return Chosen(tuple(found[number] for number in present), tuple(name_of(path, number) for number in present), missing)


def find(path: str) -> dict[int, str]:
    """Returns the path of each span that is there, of its highest version."""
    base = before_fields(path)
    places: list[tuple[str, Mapping[str, str]]] = [(base, {})]
    for part in path.removeprefix(base).strip("/").split("/"):
        pattern = _to_regex(part)
        places = [
            (f"{folder.rstrip('/')}/{match[0]}", {**values, **match.groupdict()})
            for folder, values in places
            for match in map(pattern.fullmatch, files.list_names(folder))
            if match
        ]
    places.sort(key=lambda place: int(place[1].get("VERSION", 0)))
    numbered = [(_to_number(path, values), place) for place, values in places]
    return {number: place for number, place in numbered if number is not None}  # the last one of each number


def _to_regex(part: str) -> "re.Pattern[str]":
    """Returns what matches the names of one part of a path."""
    pieces, end = [], 0
    for match in _FIELD.finditer(part):
        digits = _DIGITS.get(match[1], "[0-9]+")
        pieces += [re.escape(part[end : match.start()]), f"(?P<{match[1]}>{digits})"]
        end = match.end()
    return re.compile("".join([*pieces, re.escape(part[end:])]))


def _to_number(path: str, values: Mapping[str, str]) -> int | None:
    """Returns the number of a span; None if its date does not exist."""
    if "SPAN" in values:
        return int(values["SPAN"])
    hour = f"T{values['HH']}" if "HH" in values else ""
    try:
        return parse(path, f"{values['YYYY']}-{values['MM']}-{values['DD']}{hour}")
    except ConfigurationError:  # such as 2026-02-30
        return None


def _date_format(path: str) -> str:
    return "%Y-%m-%dT%H" if "{HH}" in path else "%Y-%m-%d"


def _step(path: str) -> timedelta:
    return timedelta(hours=1) if "{HH}" in path else timedelta(days=1)


def _shorten(names: Iterable[str]) -> str:
    listed = list(names)
    shown = listed if len(listed) <= _SHOWN else [*listed[:2], "...", *listed[-2:]]
    return ", ".join(shown)
