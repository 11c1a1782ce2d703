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
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone

import tensorflow as tf

from tfx_distribute.trainer_module import timeouts
from tfx_distribute.trainer_module.errors import PreemptedError, TfxDistributeError
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.reporting import last_words
from tfx_distribute.trainer_module.reporting.history import FOLDER, HistoryRecord
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

# Between two reports of training steps: at least so many seconds. Between two of those,
# and between two epochs after the first ones: this share of the time since the process
# started. A day of training is then about 3,000 lines of either kind.
MIN_SECONDS = 1.0
SHARE = 1 / 500
FIRST_EPOCHS = 500  # `compare` trains fewer, of a few steps each
# After an error of the storage, a new file is begun: there is no more to gain after so
# many errors in a row.
MAX_ERRORS = 5
_RECORD_FIELDS = {field.name for field in fields(HistoryRecord)}


class HistoryWriter:
    """Writes the reports of one try of this process.

    If the storage fails, it warns once and tries again later, in another file. Reports
    that cannot be written are dropped.

    Args:
      model_run_dir: Path or address of the ModelRun.
      task: The role of this process.
    """

    def __init__(self, model_run_dir: str, task: ClusterTask):
        self._started, self._started_at = time.time(), time.monotonic()
        self._attempt = os.environ.get(TRY, _time_name(self._started))
        self._task = task.file_name
        self._folder = f"{model_run_dir}/{FOLDER}"
        self._flush_seconds = timeouts.HISTORY_FLUSH_SECONDS if "://" in model_run_dir else 0.0
        self._added_at: dict[str, float] = {}  # phase -> when its last report was added
        self._epochs_added = 0
        self._left_out: HistoryRecord | None = None  # the last epoch, unless it was added
        self._last = HistoryRecord(self._started, self._task, self._attempt, self._started, "start")
        self._records: queue.SimpleQueue[HistoryRecord | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._unflushed: list[str] = []  # lines
        self._errors = 0  # of the storage, in a row
        self._thread = threading.Thread(target=self._run, daemon=True, name="history")
        self._thread.start()

    def add(self, progress: Progress) -> None:
        """Adds a report, unless the last one of the same kind is too recent."""
        if not self._thread.is_alive():
            return  # it has given up, and nothing empties the queue
        known = {name: value for name, value in asdict(progress).items() if name in _RECORD_FIELDS and value is not None}
        record = HistoryRecord(time=time.time(), task=self._task, attempt=self._attempt, started=self._started, **known)
        now = time.monotonic()
        interval = max(MIN_SECONDS if record.phase == "train" else 0.0, SHARE * (now - self._started_at))
        is_early = now - self._added_at.get(record.phase, -math.inf) < interval
        if record.phase == "epoch":
            is_early = is_early and self._epochs_added >= FIRST_EPOCHS
            self._epochs_added += not is_early
        self._last = record
        if record.phase == "epoch":
            self._left_out = record if is_early else None
        elif record.phase != "train":
            self._add_left_out()
        if record.message or record.phase not in ("train", "epoch"):
            self._records.put(record)
        elif not is_early:
            self._added_at[record.phase] = now
            self._records.put(record)

    def close(self, error: BaseException | None = None) -> None:
        """Writes the rest. Never raises an error.

        Args:
          error: The error that ends this try, if any.
        """
        with contextlib.suppress(Exception):  # `str` of an error may raise another one
            if error:
                text = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
                self._add_end("stopped" if isinstance(error, PreemptedError) else "failed", text)
        self._end()

    def end_at_once(self, phase: str, message: str) -> None:
        """Writes the rest and why this process ends; see `last_words`."""
        self._add_end(phase, message)
        self._end()

    def _add_end(self, phase: str, message: str) -> None:
        self.add(Progress(phase, step=self._last.step, train_steps=self._last.train_steps, message=message[:2000]))

    def _end(self) -> None:
        self._add_left_out()
        self._closing.set()
        self._records.put(None)
        self._thread.join(timeouts.HISTORY_CLOSE_SECONDS)

    def _add_left_out(self) -> None:
        if self._left_out:
            self._records.put(self._left_out)
            self._left_out = None

    def _run(self) -> None:
        has_warned = has_ended = False
        while not has_ended and self._errors < MAX_ERRORS:
            path = f"{self._folder}/{self._task}-{_time_name(time.time())}.jsonl"
            try:
                has_ended = self._write(path)
            except (tf.errors.OpError, OSError) as error:
                self._errors += 1
                if not has_warned:
                    reason = next(iter(str(error).splitlines()), type(error).__name__)
                    LOGGER.warning(f"the history cannot be written to {path}: {reason}")
                has_warned = True
                self._closing.wait(timeouts.HISTORY_RETRY_SECONDS)

    def _write(self, path: str) -> bool:
        """Writes a file until the end; returns True."""
        tf.io.gfile.makedirs(self._folder)
        with tf.io.gfile.GFile(path, "w") as file:
            file.write("".join(self._unflushed))  # what an earlier file may lack
            flushed_at, has_ended = -self._flush_seconds, False
            while True:
                rest = flushed_at + self._flush_seconds - time.monotonic()
                if self._unflushed and (has_ended or rest <= 0):
                    file.flush()
                    self._unflushed.clear()
                    self._errors, flushed_at = 0, time.monotonic()
                if has_ended:
                    return True
                with contextlib.suppress(queue.Empty):
                    record = self._records.get(timeout=max(rest, 0.0) if self._unflushed else None)
                    if record is None:
                        has_ended = True
                        self._records.put(None)  # for another file, if this one fails
                        continue
                    with contextlib.suppress(ValueError):  # a value that JSON does not have
                        line = _to_line(record)
                        self._unflushed.append(line)
                        file.write(line)


def _to_line(record: HistoryRecord) -> str:
    # Paths in messages may have bytes that are not UTF-8, as lone surrogates.
    message = record.message.encode(errors="backslashreplace").decode()
    return f"{replace(record, message=message).to_json()}\n"


def _time_name(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y%m%dT%H%M%S%f")[:-3]


@contextlib.contextmanager
def writing(reporter: Reporter, model_run_dir: str, task: ClusterTask) -> Iterator[None]:
    """Writes all reports within the block to the history of a process.

    Args:
      reporter: Reports the progress of the process.
      model_run_dir: Path or address of the ModelRun.
      task: The role of this process.
    """
    writer = HistoryWriter(model_run_dir, task)
    reporter.listeners.append(writer.add)
    last_words.add(writer.end_at_once)
    try:
        yield
    except BaseException as error:
        writer.close(error)
        raise
    else:
        writer.close()
    finally:
        last_words.remove(writer.end_at_once)
