"""Writes the history of this training process; see `history`.

In a thread, since the storage may be slow: training never waits for it. At an address
such as gs://, each flush uploads the file again, so that it is flushed less often, and
reports become rarer the longer training takes.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import datetime, timezone

import tensorflow as tf

from tfx_distribute.trainer_module.errors import PreemptedError, TfxDistributeError
from tfx_distribute.trainer_module.job.cluster import TRY, ClusterTask
from tfx_distribute.trainer_module.lifecycle.history import FOLDER, HistoryRecord
from tfx_distribute.trainer_module.lifecycle.process_log import LOGGER
from tfx_distribute.trainer_module.lifecycle.progress import Progress, Reporter

# Between two reports of training steps: at least so many seconds, and this share of the
# time since the process started. A day of training is then about 3,000 lines.
MIN_SECONDS = 1.0
SHARE = 1 / 500
# Between two flushes to an address. TensorBoard's writer waits as long.
REMOTE_FLUSH_SECONDS = 30.0
CLOSE_SECONDS = 10.0  # for writing the rest when the process ends
_RECORD_FIELDS = {field.name for field in fields(HistoryRecord)}


class HistoryWriter:
    """Writes the reports of one try of this process.

    A report that cannot be written is dropped, with one warning.

    Args:
      model_run_dir: Path or address of the ModelRun.
      task: The role of this process.
    """

    def __init__(self, model_run_dir: str, task: ClusterTask):
        self._started = time.time()
        name = datetime.fromtimestamp(self._started, timezone.utc).strftime("%Y%m%dT%H%M%S%f")[:-3]
        self._attempt = os.environ.get(TRY, name)
        self._task = task.file_name
        self._folder = f"{model_run_dir}/{FOLDER}"
        self._path = f"{self._folder}/{self._task}-{name}.jsonl"
        self._flush_seconds = REMOTE_FLUSH_SECONDS if "://" in model_run_dir else 0.0
        self._last_step_report = 0.0
        self._last = HistoryRecord(self._started, self._task, self._attempt, self._started, "start")
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True, name="history")
        self._thread.start()

    def add(self, progress: Progress) -> None:
        """Adds a report, unless the last one of the same kind is too recent."""
        now = time.time()
        if progress.phase == "train" and not progress.message:
            if now - self._last_step_report < max(MIN_SECONDS, SHARE * (now - self._started)):
                return
            self._last_step_report = now
        known = {name: value for name, value in asdict(progress).items() if name in _RECORD_FIELDS and value is not None}
        self._last = HistoryRecord(time=now, task=self._task, attempt=self._attempt, started=self._started, **known)
        self._lines.put(self._last.to_json())

    def close(self, error: BaseException | None = None) -> None:
        """Writes the rest.

        Args:
          error: The error that ends this try, if any.
        """
        if error:
            text = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
            phase = "stopped" if isinstance(error, PreemptedError) else "failed"
            self.add(Progress(phase, step=self._last.step, train_steps=self._last.train_steps, message=text[:2000]))
        self._lines.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        try:
            tf.io.gfile.makedirs(self._folder)
            with tf.io.gfile.GFile(self._path, "w") as file:
                flushed = 0.0
                while (line := self._lines.get()) is not None:
                    file.write(f"{line}\n")
                    if time.monotonic() - flushed >= self._flush_seconds:
                        file.flush()
                        flushed = time.monotonic()
        except (tf.errors.OpError, OSError) as error:
            LOGGER.warning(f"the history cannot be written to {self._path}: {str(error).splitlines()[0]}")


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
    try:
        yield
    except BaseException as error:
        writer.close(error)
        raise
    writer.close()
