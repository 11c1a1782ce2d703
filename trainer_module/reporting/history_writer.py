"""Writes the history of this training process; see `history`.

In a thread, since the storage may be slow: training never waits for it. At an address
such as gs://, each flush uploads the file again, so that it is flushed less often, and
reports become rarer the longer training takes.
"""

import contextlib
import math
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PreemptedError, TfxDistributeError, first_line
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.reporting.history import FOLDER, HistoryRecord
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

# Between two reports of training steps: at least so many seconds, and this share of the
# time since the process started. A day of training is then about 3,000 lines.
MIN_SECONDS = 1.0
SHARE = 1 / 500


class HistoryWriter:
    """Writes the reports of one try of this process.

    If the storage fails, it warns, and the rest of the history is missing.
    `model_run_dir` is a path or address.
    """

    def __init__(self, model_run_dir: str, task: ClusterTask):
        self._started, self._started_at = time.time(), time.monotonic()
        self._attempt = os.environ.get(TRY, _time_name(self._started))
        self._task = task.file_name
        self._folder = f"{model_run_dir}/{FOLDER}"
        self._flush_seconds = timeouts.HISTORY_FLUSH_SECONDS if "://" in model_run_dir else 0.0
        self._added_at = -math.inf  # when the last report of training steps was added
        self._last = Progress("start")
        self._records: queue.SimpleQueue[HistoryRecord | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="history")
        self._thread.start()

    def add(self, progress: Progress) -> None:
        """Adds a report; of training steps, unless the last one is too recent."""
        if not self._thread.is_alive():
            return  # it has given up, and nothing empties the queue
        report = asdict(progress)  # a copy: callbacks may change their logs
        # Paths in messages may have bytes that are not UTF-8, as lone surrogates.
        report["message"] = progress.message.encode(errors="backslashreplace").decode()
        record = HistoryRecord(**report, time=time.time(), task=self._task, attempt=self._attempt, started=self._started)
        now = time.monotonic()
        self._last = progress
        if record.phase == "train" and not record.message:
            if now - self._added_at < max(MIN_SECONDS, SHARE * (now - self._started_at)):
                return
            self._added_at = now
        self._records.put(record)

    def close(self, error: BaseException | None = None) -> None:
        """Writes the rest, and the error that ends this try, if any. Never raises."""
        with contextlib.suppress(Exception):  # `str` of an error may raise another one
            if error:
                text = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
                phase = "stopped" if isinstance(error, PreemptedError) else "failed"
                self.add(Progress(phase, step=self._last.step, train_steps=self._last.train_steps, message=text[:2000]))
        self._records.put(None)
        self._thread.join(timeouts.HISTORY_CLOSE_SECONDS)

    def _run(self) -> None:
        path = f"{self._folder}/{self._task}-{_time_name(self._started)}.jsonl"
        try:
            tf.io.gfile.makedirs(self._folder)
            with tf.io.gfile.GFile(path, "w") as file:
                self._write(file)
        except (tf.errors.OpError, OSError) as error:
            LOGGER.warning(f"the history cannot be written to {path}, and ends here: {first_line(error)}")

    def _write(self, file: tf.io.gfile.GFile) -> None:
        """Writes lines until the end; flushes them in time though no other follows."""
        flushed_at, is_flushed = -math.inf, True
        while True:
            rest = max(flushed_at + self._flush_seconds - time.monotonic(), 0.0)
            try:
                record = self._records.get(timeout=None if is_flushed else rest)
            except queue.Empty:
                file.flush()
                flushed_at, is_flushed = time.monotonic(), True
                continue
            if record is None:
                return
            with contextlib.suppress(ValueError):  # a value that JSON does not have
                file.write(f"{record.to_json()}\n")
                is_flushed = False


def _time_name(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y%m%dT%H%M%S%f")[:-3]


@contextlib.contextmanager
def writing(reporter: Reporter, model_run_dir: str, task: ClusterTask) -> Iterator[None]:
    """Writes all reports within the block to the history of a process."""
    writer = HistoryWriter(model_run_dir, task)
    reporter.listeners.append(writer.add)
    try:
        yield
    except BaseException as error:
        writer.close(error)
        raise
    else:
        writer.close()
