"""Finds processes of a cluster that have given no sign of life for too long."""

from collections.abc import Mapping
from dataclasses import dataclass

_BUSY_SHARE = 0.05  # of one CPU; idle threads of TensorFlow and gRPC use less


@dataclass(frozen=True)
class Signs:
    """Signs of life of one process.

    Attributes:
      last_sign: A number that changes with each sign of life.
      cpu_seconds: CPU time that the process has used, in seconds.
    """

    last_sign: int
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Silence:
    """Silence of a process that hangs.

    Attributes:
      seconds: Seconds since its last sign of life.
      busy: True if it has used CPU time since then, for longer than that counts as a
        sign of life.
    """

    seconds: float
    busy: bool

    @property
    def message(self) -> str:
        """Describes the silence, and which parameter gives the process more time."""
        if self.busy:
            return (
                f"it used CPU time but gave no sign of life for {self.seconds:.0f} s; if it needs more time, write a larger "
                "progress_timeout_secs, or 0 for no limit"
            )
        return (
            f"it gave no sign of life for {self.seconds:.0f} s; if it needs more time, write a larger heartbeat_timeout_secs"
        )


@dataclass
class _History:
    """Last observations of a process.

    Attributes:
      signs: The signs of life when it was last alive.
      last_sign_at: When it last gave a sign of life.
      alive_at: When it was last alive: it gave a sign of life, or used CPU time.
      silent: Seconds of silence that count, because another process was alive.
    """

    signs: Signs
    last_sign_at: float
    alive_at: float
    silent: float = 0.0


class SilenceMonitor:
    """Finds processes that hang, apart from processes that were all suspended together.

    The silence of one process counts only while another gives signs of life. If none
    gives any, the machine may have been paused, and all may continue: the limit is
    longer then.

    A process whose main thread holds Python's interpreter lock, as in one long call of
    a C function, cannot give signs of life. The CPU time that it uses counts instead,
    but only for a limited time, since an endless loop uses CPU time as well.

    Args:
      limit: Seconds of silence after which a process hangs while others are alive.
      common_limit: Seconds of silence of all processes after which all of them hang.
      busy_limit: Seconds without another sign of life for which CPU time counts as one;
        0 for no limit.
    """

    def __init__(self, limit: float, common_limit: float, busy_limit: float = 0.0):
        self._limit, self._common_limit, self._busy_limit = limit, common_limit, busy_limit or float("inf")
        self._histories: dict[str, _History] = {}
        self._now = 0.0
        self._all_silent = 0.0

    def find_hung(self, now: float, signs: Mapping[str, Signs]) -> dict[str, Silence]:
        """Notes the latest signs of life, and returns the processes that hang, by name.

        Args:
          now: Seconds by a `RunningClock`.
          signs: Name of each running process -> its signs of life.
        """
        passed, self._now = now - self._now, now
        self._histories = {name: self._update(name, latest, now) for name, latest in signs.items()}
        alive = {name for name, history in self._histories.items() if now - history.alive_at < self._limit / 2}
        if not alive:
            self._all_silent += passed
            hung = list(signs) if self._all_silent >= self._common_limit else []
        else:
            self._all_silent = 0.0
            for name, history in self._histories.items():
                if history.alive_at < now and alive - {name}:
                    history.silent += passed
            hung = [name for name, history in self._histories.items() if history.silent >= self._limit]
        return {name: self._silence(self._histories[name], signs[name]) for name in hung}

    def _update(self, name: str, latest: Signs, now: float) -> _History:
        """Returns the history of a process with its latest signs of life."""
        history = self._histories.get(name)
        if history is None or history.signs.last_sign != latest.last_sign:
            return _History(latest, now, now)
        if now - history.last_sign_at < self._busy_limit and self._uses_cpu(history, latest):
            return _History(latest, history.last_sign_at, now)
        return history

    def _uses_cpu(self, history: _History, latest: Signs) -> bool:
        return latest.cpu_seconds - history.signs.cpu_seconds >= _BUSY_SHARE * self._limit

    def _silence(self, history: _History, latest: Signs) -> Silence:
        return Silence(self._now - history.last_sign_at, self._uses_cpu(history, latest))
