"""Writes the history of this training process; see `history`.

In a thread, since the storage may be slow: training never waits for it. At an address
such as gs://, each flush uploads the file again, so that it is flushed less often.
"""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PreemptedError, TfxDistributeError, first_line
from tfx_distribute.trainer_module.reporting.history import FOLDER
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter


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
        with contextlib.suppress(Exception):  # `str` of an error may raise another one
            text = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
            phase = "stopped" if isinstance(error, PreemptedError) else "failed"
            last = Progress(phase, reporter.last.step, reporter.last.train_steps, message=text[:2000])
            reporter.record(last)
        raise
    finally:
        writer.close()


class HistoryWriter:
    """Writes reports to one file."""

    def __init__(self, folder: str, name: str):
        self._folder, self._path = folder, f"{folder}/{name}"
        self._flush_seconds = timeouts.HISTORY_FLUSH_SECONDS if "://" in folder else 0.0
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="history")
        self._thread.start()

    def add(self, progress: Progress) -> None:
        """Adds a report, unless the writer has given up."""
        if self._thread.is_alive():
            self._lines.put(f"{progress.to_json()}\n")

    def close(self) -> None:
        """Writes the rest. Never raises."""
        self._lines.put(None)
        self._thread.join(timeouts.HISTORY_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            tf.io.gfile.makedirs(self._folder)
            with tf.io.gfile.GFile(self._path, "w") as file:
                self._write(file)
        except (tf.errors.OpError, OSError) as error:
            LOGGER.warning(f"the history cannot be written to {self._path}, and ends here: {first_line(error)}")

    def _write(self, file: tf.io.gfile.GFile) -> None:
        """Writes lines until the end; flushes them in time though no other follows."""
        flushed_at, is_flushed = -math.inf, True
        while True:
            rest = max(flushed_at + self._flush_seconds - time.monotonic(), 0.0)
            try:
                line = self._lines.get(timeout=None if is_flushed else rest)
            except queue.Empty:
                file.flush()
                flushed_at, is_flushed = time.monotonic(), True
                continue
            if line is None:
                return
            file.write(line)
            is_flushed = False
