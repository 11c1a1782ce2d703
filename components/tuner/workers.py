"""Runs several trials at the same time, each in a thread that follows its launch."""

import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tfx_distribute.components.launchers.sigterm import TerminatedError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Workers(Generic[_Item, _Result]):
    """Calls a function for several items at the same time, and collects the results.

    With one worker, the calling thread does the work, so that Ctrl-C and SIGTERM reach
    it as they reach the Trainer. Threads get them when the block is left.

    ```python
    with Workers(2, train) as workers:
        workers.start("a", first)
        workers.start("b", second)
        key, item, result, error = workers.next()
    ```

    `busy` has the items in work, by key.
    """

    def __init__(self, count: int, function: Callable[[_Item], _Result]):
        self.busy: dict[str, _Item] = {}
        self._count = count
        self._function = function
        self._ended: queue.Queue[tuple[str, _Result | None, BaseException | None]] = queue.Queue()
        self._threads: dict[str, threading.Thread] = {}

    def __enter__(self) -> "Workers[_Item, _Result]":
        return self

    def __exit__(self, *_: Any) -> None:
        """Interrupts what is still running as Ctrl-C would, and waits for its end."""
        for thread in self._threads.values():
            _raise_in(thread, TerminatedError)
        for thread in self._threads.values():
            thread.join()

    def free_key(self) -> str | None:
        """Returns the key of a worker that is free; None if all are busy."""
        return next((key for key in map(str, range(self._count)) if key not in self.busy), None)

    def start(self, key: str, item: _Item) -> None:
        """Gives a free worker something to do."""
        self.busy[key] = item
        if self._count > 1:
            thread = threading.Thread(target=self._work, args=(key, item), name=f"trial-worker-{key}", daemon=True)
            self._threads[key] = thread
            thread.start()

    def next(self) -> tuple[str, _Item, _Result | None, BaseException | None]:
        """Waits until one of the items in work is done.

        Returns:
          The worker's key, the item, and its result or the exception that it raised.
        """
        if self._count == 1:
            ((key, item),) = self.busy.items()
            self._work(key, item)
        key, result, error = self._ended.get()
        thread = self._threads.pop(key, None)
        if thread:
            thread.join()
        return key, self.busy.pop(key), result, error

    def _work(self, key: str, item: _Item) -> None:
        try:
            self._ended.put((key, self._function(item), None))
        except Exception as error:
            self._ended.put((key, None, error))
        except BaseException as error:
            if self._count == 1:
                raise
            self._ended.put((key, None, error))


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raises an exception in a thread, at its next instruction, as a signal would.

    Launchers end what they have started when that happens. Python delivers signals to
    its main thread only.
    """
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
