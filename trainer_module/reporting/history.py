"""Writes and reads the history of a training: what each process reported while it ran.

Each try of each process writes a file `<model run>/history/<task>-<start>.jsonl`, one
JSON object per line, such as `worker-0-20260131T120000123.jsonl`, each a `Progress`.
It is written in a thread, since the storage may be slow: training never waits for it.
At an address such as gs://, each flush uploads the file again, so that it is flushed
less often. Imports no TensorFlow unless it writes, or reads at an address.
"""

import contextlib
import queue
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PreemptedError, TfxDistributeError, first_line
from tfx_distribute.trainer_module.job.time_use import ProcessTime, TimeUse, summarize
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

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


def time_use(records: Iterable[Progress]) -> TimeUse:
    """Says how the latest try of each process spent its time."""
    ordered = sorted(records, key=lambda record: (record.started, record.time))
    started = {record.task: record.started for record in ordered}
    latest = {record.task: record for record in ordered if record.seconds and record.started == started[record.task]}
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


@contextlib.contextmanager
def writing(reporter: Reporter, model_run_dir: str) -> Iterator[None]:
    """Writes all reports within the block, and the error that ends it, to the history.

    `model_run_dir` is a path or address. If the storage fails, a warning says so, and
    the rest of the history is missing.
    """
    start = datetime.fromtimestamp(reporter.started, timezone.utc).strftime("%Y%m%dT%H%M%S%f")[:-3]
    writer = HistoryWriter(f"{model_run_dir}/{FOLDER}", f"{reporter.task}-{start}.jsonl")
    reporter.listeners.append(writer.add)
    try:
        yield
    except BaseException as error:
        text = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
        phase = "stopped" if isinstance(error, PreemptedError) else "failed"
        reporter.record(Progress(phase, reporter.last.step, reporter.last.train_steps, message=text[:2000]))
        raise
    finally:
        writer.close()


class HistoryWriter:
    """Writes reports to one file."""

    def __init__(self, folder: str, name: str):
        self._folder, self._path = folder, f"{folder}/{name}"
        self._flush_seconds = timeouts.HISTORY_FLUSH_SECONDS if "://" in folder else 0.0
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._closes = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="history")
        self._thread.start()

    def add(self, progress: Progress) -> None:
        """Adds a report, unless the writer has given up."""
        if self._thread.is_alive():
            self._lines.put(f"{progress.to_json()}\n")

    def close(self) -> None:
        """Writes the rest. Never raises."""
        self._lines.put(None)
        self._closes.set()
        self._thread.join(timeouts.HISTORY_CLOSE_SECONDS)

    def _run(self) -> None:
        import tensorflow as tf

        try:
            tf.io.gfile.makedirs(self._folder)
            with tf.io.gfile.GFile(self._path, "w") as file:
                self._write(file)
        except (tf.errors.OpError, OSError) as error:
            LOGGER.warning(f"the history cannot be written to {self._path}, and ends here: {first_line(error)}")

    def _write(self, file: Any) -> None:
        lines: list[str | None] = []
        while None not in lines:
            lines = [self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get())
            file.write("".join(filter(None, lines)))
            file.flush()
            self._closes.wait(self._flush_seconds)
