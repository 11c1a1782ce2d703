"""Runs the TensorBoard profiler during a window of training steps."""

import tensorflow as tf


class Profiler:
    """Starts and stops the profiler between TensorFlow calls.

    Every process divides its calls at the window's ends, so that the calls of all
    processes have the same length. Only a process with a folder, TensorBoard's log
    folder, profiles. The window is the first and last training step, from 1.
    """

    def __init__(self, window: tuple[int, int] | None, folder: str | None):
        # Steps that are done when the profiler starts and when it stops.
        self._ends: tuple[int, ...] = (window[0] - 1, window[1]) if window else ()
        self._folder = folder
        self._running = False

    def start_if_due(self, step: int) -> None:
        """Starts the profiler if the window begins after `step` steps."""
        if self._folder is not None and self._ends and step == self._ends[0]:
            tf.profiler.experimental.start(self._folder)
            self._running = True

    def stop_if_due(self, step: int) -> None:
        """Stops the profiler if the window has ended after `step` steps."""
        if self._ends and step >= self._ends[1]:
            self.stop()

    def stop(self) -> None:
        """Stops the profiler if it is running, and writes the profile."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False

    def steps_until_end(self, step: int) -> int | None:
        """Returns the number of steps from `step` to the next end of the window.

        None if both ends are past.
        """
        return next((end - step for end in self._ends if end > step), None)
