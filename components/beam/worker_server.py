"""Starts Beam workers as forks of a process that has imported what they need.

A fresh interpreter needs seconds to import TensorFlow and TFX, and a component starts
workers for each of its Beam pipelines.
"""

import atexit
import contextlib
import functools
import os
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

from tfx_distribute.components.fork_client import ForkClient

_WORKER = "tfx_distribute.components.beam.worker_process"


class WorkerServer(ForkClient):
    """The fork server of the Beam workers of this process."""

    def __init__(self) -> None:
        self._ends: dict[str, Future[int]] = {}  # of all workers, by name
        self._has_ended = False
        super().__init__(f"{_WORKER}:prepare", os.environ, self._receive)
        atexit.register(self.close)

    def start(self, environment: Mapping[str, str]) -> tuple[str, "Future[int]"]:
        """Starts a worker with the environment of this process, and more variables.

        Returns its name, for `signal`, and its exit code, or minus the number of the
        signal that ended it. Those of the server count if it has ended.
        """
        name = uuid.uuid4().hex
        end = self._ends[name] = Future[int]()
        self.fork(name, f"{_WORKER}:run", [], {**os.environ, **environment})
        if self._has_ended:
            self._receive(None)
        return name, end

    def _receive(self, answer: dict[str, Any] | None) -> None:
        if answer is None:
            self._has_ended = True
            status = self.wait()
            for end in list(self._ends.values()):
                with contextlib.suppress(InvalidStateError):  # that worker had ended before
                    end.set_result(status)
        elif "ended" in answer:
            self._ends[answer["ended"]].set_result(answer["status"])


@functools.cache
def shared() -> WorkerServer:
    """Returns the server of this process; starts it when first called."""
    return WorkerServer()
