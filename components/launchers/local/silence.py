"""Decides which of a cluster's processes have given no sign of life for too long."""

from collections.abc import Mapping
from dataclasses import dataclass

_BUSY_SHARE = 0.05  # of a CPU; the idle threads of TensorFlow and gRPC use less


@dataclass(frozen=True)
class Signs:
    """Signs of life of one process.

    Attributes:
      given: A number that changes with each sign of life that it gives.
      cpu_seconds: CPU time that it has used.
    """

    given: int
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Silence:
    """How long a process that hangs has been silent.

    Attributes:
      seconds: Since it last gave a sign of life.
      busy: Whether it has used CPU time meanwhile, for longer than that counts as a sign of life.
    """

    seconds: float
    busy: bool

    @property
    def message(self) -> str:
        """Words that say so, and which parameter gives it more time."""
        if self.busy:
            return (
                f"it used CPU time but gave no sign of life for {self.seconds:.0f} s; if it needs more time, write a larger "
                "progress_timeout_secs, or 0 for no limit"
            )
        return (
            f"it gave no sign of life for {self.seconds:.0f} s; if it needs more time, write a larger heartbeat_timeout_secs"
        )


@dataclass
class _Heard:
    signs: Signs
    given_at: float
    at: float
    silent: float = 0.0


class SilenceMonitor:
    """Tells a process that hangs from processes that were all suspended for a while.

    The silence of one process counts while another gives signs of life. Where none gives any, the machine may have been
    paused with all of them, and they may all go on: that is waited for longer.

    A process whose main thread holds Python's interpreter lock, as in one long call of a C function, cannot give signs of
    life. The CPU time that it uses counts instead, for a limited time, since an endless loop uses CPU time as well.

    Args:
      one: Seconds of silence after which a process counts as hung while others live.
      everybody: Seconds of silence of all processes after which all count as hung.
      busy: Seconds without another sign of life for which CPU time counts as one; 0 for no limit.
    """

    def __init__(self, one: float, everybody: float, busy: float = 0.0):
        self._one, self._everybody, self._busy = one, everybody, busy or float("inf")
        self._heard: dict[str, _Heard] = {}
        self._now = 0.0
        self._all_silent = 0.0

    def hung(self, now: float, signs: Mapping[str, Signs]) -> dict[str, Silence]:
        """Takes in the latest signs of life, and returns the processes that hang, by name.

        Args:
          now: Seconds by a `RunningClock`.
          signs: Name of each running process -> its signs of life.
        """
        passed, self._now = now - self._now, now
        self._heard = {name: self._hear(name, latest, now) for name, latest in signs.items()}
        alive = {name for name, heard in self._heard.items() if now - heard.at < self._one / 2}
        if not alive:
            self._all_silent += passed
            hung = list(signs) if self._all_silent >= self._everybody else []
        else:
            self._all_silent = 0.0
            for name, heard in self._heard.items():
                if heard.at < now and alive - {name}:
                    heard.silent += passed
            hung = [name for name, heard in self._heard.items() if heard.silent >= self._one]
        return {name: self._silence(self._heard[name], signs[name]) for name in hung}

    def _hear(self, name: str, latest: Signs, now: float) -> _Heard:
        before = self._heard.get(name)
        if before is None or before.signs.given != latest.given:
            return _Heard(latest, now, now)
        if now - before.given_at < self._busy and self._uses_cpu(before, latest):
            return _Heard(latest, before.given_at, now)
        return before

    def _uses_cpu(self, heard: _Heard, latest: Signs) -> bool:
        return latest.cpu_seconds - heard.signs.cpu_seconds >= _BUSY_SHARE * self._one

    def _silence(self, heard: _Heard, latest: Signs) -> Silence:
        return Silence(self._now - heard.given_at, self._uses_cpu(heard, latest))
