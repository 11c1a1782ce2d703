"""Reads the history of a training: what each process reported while it ran.

Each try of each process writes a file `<model run>/history/<task>-<start>.jsonl`, one
JSON object per line, such as `worker-0-20260131T120000123.jsonl`, each a `Progress`.
`history_writer` writes them. This module imports no TensorFlow unless the folder is at
an address.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfx_distribute.trainer_module.job.time_use import ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.reporting.progress import Progress

FOLDER = "history"  # in the folder of the ModelRun


def read(folder: str) -> list[Progress]:
    """Reads the history in the folder of a ModelRun, in order of time.

    Lines that are torn are left out. `folder` is a path or address; if it is missing,
    there are no records.

    Example:
      >>> [record.metrics["loss"] for record in read("run") if record.phase == "epoch"]
      [0.9, 0.4]
    """
    records = [record for text in _read_files(f"{folder}/{FOLDER}") for record in parse(text.splitlines())]
    return sorted(records, key=lambda record: record.time)


def parse(lines: Iterable[bytes | str]) -> list[Progress]:
    """Parses lines of reports; leaves out those that are not reports."""
    records = []
    for line in lines:
        with contextlib.suppress(ValueError):
            records.append(Progress.from_json(line))
    return records


def latest_attempt(records: Iterable[Progress]) -> list[Progress]:
    """Returns the records of the latest try of each process."""
    records = list(records)
    started: dict[str, float] = {}
    for record in records:
        started[record.task] = max(record.started, started.get(record.task, 0.0))
    return [record for record in records if record.started == started[record.task]]


def time_use(records: Iterable[Progress]) -> TimeUse:
    """Says how the latest try of each process spent its time."""
    latest: dict[str, Progress] = {}
    for record in latest_attempt(records):
        if record.seconds and (record.task not in latest or record.time >= latest[record.task].time):
            latest[record.task] = record
    return summarize([ProcessTime(record.task, record.seconds, record.counters) for _, record in sorted(latest.items())])


def _read_files(folder: str) -> Iterator[bytes]:
    if "://" not in folder:
        for path in sorted(Path(folder).glob("*.jsonl")):
            with contextlib.suppress(OSError):
                yield path.read_bytes()
        return
    import tensorflow as tf

    with contextlib.suppress(tf.errors.OpError):
        for name in sorted(tf.io.gfile.glob(f"{folder}/*.jsonl")):
            with tf.io.gfile.GFile(name, "rb") as file:
                yield file.read()
