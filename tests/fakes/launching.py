"""Runs the launcher of pods in a thread, for tests in which something happens to it."""

import threading
import time
from typing import Any

from tfx_distribute.components.launchers.kubernetes import launcher
from tfx_distribute.components.launchers.kubernetes.job_kind import JobKind


class Launch:
    """The launcher in a thread, and how and when it ended.

    Args:
      kind: Kind of the job.
      manifest: Its manifest.
      max_restarts: As in `Limits`.
      has_result: As in `launch`.
      **limits: Other limits.

    Attributes:
      kind: Kind of the job.
      name: Its name.
      error: What the launcher raised; None if it has returned or is running.
      seconds: How long it ran.
    """

    def __init__(
        self, kind: JobKind, manifest: dict[str, Any], max_restarts: int = 3, *, has_result: bool = False, **limits: Any
    ):
        self.kind = kind
        self.name: str = manifest["metadata"]["name"]
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(
            target=self._run, args=(kind, manifest, launcher.Limits(max_restarts, **limits), has_result), daemon=True
        )
        self._thread.start()

    def _run(self, kind: JobKind, manifest: dict[str, Any], limits: launcher.Limits, has_result: bool) -> None:
        began = time.monotonic()
        try:
            launcher.launch(kind, manifest, limits, has_result=has_result)
        except BaseException as error:
            self.error = error
        self.seconds = time.monotonic() - began

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float = 280.0) -> BaseException | None:
        """Waits for its end; returns what it raised."""
        self._thread.join(seconds)
        assert not self.is_running, "the launcher does not end"
        return self.error
