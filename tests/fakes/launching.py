"""Runs the TFJob launcher in a thread, for tests in which something happens to it."""

import threading
import time
from typing import Any

from tfx_distribute.components.launchers.tfjob import launcher as tfjob_launcher


class Launch:
    """The launcher in a thread, and how and when it ended.

    Args:
      manifest: Manifest of the TFJob.
      max_restarts: As in `launch`.
      **options: Other arguments of `launch`.

    Attributes:
      name: Name of the TFJob.
      error: What the launcher raised; None if it has returned or is running.
      seconds: How long it ran.
    """

    def __init__(self, manifest: dict[str, Any], max_restarts: int = 3, **options: Any):
        self.name: str = manifest["metadata"]["name"]
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, args=(manifest, max_restarts, options), daemon=True)
        self._thread.start()

    def _run(self, manifest: dict[str, Any], max_restarts: int, options: dict[str, Any]) -> None:
        began = time.monotonic()
        try:
            tfjob_launcher.launch(manifest, max_restarts, **options)
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
