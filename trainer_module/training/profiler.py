"""The TensorBoard profiler, on for a window of training steps."""

import tensorflow as tf


class Profiler:
    """Starts and stops the profiler between TensorFlow calls.

    Every process divides its calls at the window's ends, so that all of them take calls of equal length; only the one that
    writes profiles.

    Args:
      window: First and last training step of the window, from 1; None for no profile.
      folder: Where TensorBoard looks for it; None for a process that writes none.
    """

    def __init__(self, window: tuple[int, int] | None, folder: str | None):
        # Steps taken before the profiler starts, and when it stops.
        self._ends = (window[0] - 1, window[1]) if window else ()
        self._folder = folder
        self._running = False

    def start_if_due(self, step: int) -> None:
        """Starts, after so many steps."""
        if self._folder is not None and self._ends and step == self._ends[0]:
            tf.profiler.experimental.start(self._folder)
            self._running = True

    def stop_if_due(self, step: int) -> None:
        """Stops, after so many steps."""
        if self._ends and step >= self._ends[1]:
            self.stop()

    def stop(self) -> None:
        """Writes the profile, if the window is open."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False

    def steps_until_end(self, step: int) -> int | None:
        """Steps from `step` to the next end of the window; None after the last."""
        return next((end - step for end in self._ends if end > step), None)
