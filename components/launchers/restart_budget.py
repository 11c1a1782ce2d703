"""Decides if a training may be started again: the parameter `max_restarts`."""

from collections.abc import Callable

from tfx_distribute.trainer_module.lifecycle.saved_step import SavedStep


class RestartBudget:
    """Counts the restarts of a training since its saved state last advanced.

    ```python
    budget = RestartBudget(3, lambda: saved_step.read("/states/4d2f"))
    while not train() and budget.spend():
        pass
    ```

    Args:
      max_restarts: How many restarts in a row are allowed in which the training does
        not advance.
      read_step: Returns the training step of the newest saved state. If that is
        unknown, each restart counts.

    Attributes:
      max_restarts: As above.
      used: Restarts since the training last advanced.
    """

    def __init__(self, max_restarts: int, read_step: Callable[[], SavedStep]):
        self.max_restarts = max_restarts
        self.used = 0
        self._read_step = read_step
        saved = read_step()
        # The furthest step of each state's settings. A training may begin in a folder
        # whose newest state is further, but of other settings.
        self._furthest = {saved.made_with: saved.step}

    def is_used_up(self) -> bool:
        """Returns True if no other restart is allowed."""
        saved = self._read_step()
        if saved.step > self._furthest.get(saved.made_with, 0):
            self._furthest[saved.made_with], self.used = saved.step, 0
        return self.used >= self.max_restarts

    def spend(self) -> bool:
        """Counts a restart; returns False if it is not allowed."""
        if self.is_used_up():
            return False
        self.used += 1
        return True

    def spend_all(self) -> None:
        """Counts all restarts, after a service has made them by itself."""
        self.used = self.max_restarts
