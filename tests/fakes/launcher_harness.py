"""Defines what the contract of launchers needs to know of a platform.

To have a launcher pass the contract, write a class like `Harness` in a module of this
folder, and add it to `HARNESSES` in tests/components/launchers/test_contract.py.
"""

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from tfx_distribute.components.launchers.launcher import Launcher, Restarts, Training

# `succeed`: all processes end well. `fail`: one fails, and another start may help.
# `break`: one fails, and another start would fail too. `run`: they run until they are
# stopped. `wait`: the platform does not start them.
Act = Literal["succeed", "fail", "break", "run", "wait"]


class Harness(abc.ABC):
    """A platform, or a stand-in for one, on which a training does as it is told.

    Args:
      folder: An empty folder.
      monkeypatch: For what must be replaced; it is undone after the test.

    Attributes:
      SKIPPED: Name of a case -> why it makes no sense on this platform.
      training: The training; the test sets `max_restarts`.
    """

    SKIPPED: ClassVar[Mapping[str, str]] = {}
    training: Training

    @abc.abstractmethod
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch): ...

    @abc.abstractmethod
    def act(self, *acts: Act) -> None:
        """Sets what the training does at its first start, at its second, and so on.

        At each start after these, it does the last one again. Starts are those by the
        launcher and those by the platform itself.
        """

    @abc.abstractmethod
    def make_launcher(self, restarts: Restarts) -> Launcher[Any]:
        """Returns a new launcher, as each attempt of a pipeline step has one.

        Args:
          restarts: Those of the attempt, for a launcher that restarts a part of a
            training itself; others ignore them.
        """

    @abc.abstractmethod
    def num_starts(self) -> int:
        """Returns how often the training has been started, with any act but `wait`."""

    @abc.abstractmethod
    def is_running(self) -> bool:
        """Returns True if any process of the training runs."""

    def exists(self) -> bool:
        """Returns True if something of it runs, or waits to be started."""
        return self.is_running()

    @abc.abstractmethod
    def close(self) -> None:
        """Ends everything."""
