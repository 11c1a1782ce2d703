"""Reads the history of a training: what each process reported while it ran.

Each try of each process writes a file `<model run>/history/<task>-<start>.jsonl`, one
JSON object per line, such as `worker-0-20260131T120000123.jsonl`. `history_writer`
writes them. This module imports no TensorFlow unless the folder is at an address.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tfx_distribute.trainer_module.job.time_use import ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.reporting.progress import Progress

FOLDER = "history"  # in the folder of the ModelRun


@dataclass(frozen=True, kw_only=True)
class HistoryRecord(Progress):
    """One report of a training process, at the time when it was made.

    More phases than those of `Progress`: `epoch` for the report at the end of an epoch,
    whose metrics are those of `on_epoch_end`, the evaluation's `val_` ones included;
    `failed` if the try ended with an error, which `message` has; `stopped` if it was
    asked to end.

    Attributes:
      time: Unix time of the report, in seconds.
      task: The process: `chief-0`, `worker-1`, `ps-0`.
      attempt: Name of the process's try. On one machine, all processes of a try have
        the same; elsewhere it is the time at which the process started. Names of later
        tries of a process need not sort after those of earlier ones; `started` does.
      started: Unix time at which this try of the process started.
    """

    # The loss may be infinite or NaN.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="constants")

    time: float
    task: str
    attempt: str
    started: float

    def to_json(self) -> str:
        """Returns the record as one line, without a line break."""
        return _RECORD.dump_json(self).decode()


_RECORD = TypeAdapter(HistoryRecord)


def read(folder: str) -> list[HistoryRecord]:
    """Reads the history in the folder of a ModelRun, in order of time.

    Lines that are torn, and those of other versions without a field that this one
    needs, are left out, and so are fields that this version does not know.

    Args:
      folder: Path or address of the ModelRun. It may be missing, and then has no
        records.

    Example:
      >>> [record.metrics["loss"] for record in read("run") if record.phase == "epoch"]
      [0.9, 0.4]
    """
    records = [record for text in _read_files(f"{folder}/{FOLDER}") for record in parse(text.splitlines())]
    return sorted(records, key=lambda record: record.time)


def parse(lines: Iterable[bytes | str]) -> list[HistoryRecord]:
    """Returns the records of lines; leaves out lines that are none."""
    records = []
    for line in lines:
        with contextlib.suppress(ValidationError):
            records.append(_RECORD.validate_json(line))
    return records


def latest_attempt(records: Iterable[HistoryRecord]) -> list[HistoryRecord]:
    """Returns the records of the latest try of each process."""
    records = list(records)
    started: dict[str, float] = {}
    for record in records:
        started[record.task] = max(record.started, started.get(record.task, 0.0))
    return [record for record in records if record.started == started[record.task]]


def time_use(records: Iterable[HistoryRecord]) -> TimeUse:
    """Says how the latest try of each process spent its time.

    Args:
      records: Records of any processes, tries and order.
    """
    latest: dict[str, HistoryRecord] = {}
    for record in latest_attempt(records):
        if record.seconds and (record.task not in latest or record.time >= latest[record.task].time):
            latest[record.task] = record
    return summarize([ProcessTime(record.task, record.seconds, record.counters) for _, record in sorted(latest.items())])


def _read_files(folder: str) -> Iterable[bytes]:
    if "://" in folder:
        return _read_remote(folder)
    contents = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        with contextlib.suppress(OSError):
            contents.append(path.read_bytes())
    return contents


def _read_remote(folder: str) -> Iterable[bytes]:
    import tensorflow as tf

    contents = []
    with contextlib.suppress(tf.errors.OpError):
        for path in sorted(tf.io.gfile.glob(f"{folder}/*.jsonl")):
            with tf.io.gfile.GFile(path, "rb") as file:
                contents.append(file.read())
    return contents
