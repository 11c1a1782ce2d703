"""Keeps two live runs from writing to the same folder.

The lock is an advisory lock of the operating system (`flock`) on a file in the folder.
It ends with the process that holds it, even one that is killed, so that a killed run
never blocks the next. For messages, the file names the process that holds the lock.
"""

import contextlib
import errno
import fcntl
import json
import math
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from tfx_distribute.trainer_module.errors import ConfigurationError

LOCK_FILE = ".lock"

# Errors of a folder where a lock file cannot be created. The run continues without a
# lock: a run that writes there will fail at that, and one that only reads may continue.
_TAKES_NO_FILES = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOSYS, errno.ENOTSUP)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, and since when, as ISO 8601.

    A process that has not written its name, for lack of room, has empty values.
    """

    pid: int = 0
    host: str = ""
    since: str = ""
    command: str = ""

    def __str__(self) -> str:
        if not self.pid:
            return "another process"
        return f"process {self.pid} on {self.host}, running since {self.since}: {self.command}"

    @property
    def since_time(self) -> float:
        """Returns since when, as Unix time; infinite if that is not known."""
        try:
            return datetime.fromisoformat(self.since).timestamp()
        except (ValueError, TypeError):
            return math.inf


class InUseError(ConfigurationError):
    """Another live process is using a folder."""


@contextlib.contextmanager
def exclusive(folder: str, what: str, advice: str) -> Iterator[None]:
    """Holds the lock of a folder within the block.

    On object stores (`gs://`) and file systems without locks, the block runs without
    one. A missing folder is created. For messages, `what` names the folder, and
    `advice` says what to do if it is in use.

    Raises:
      InUseError: Another live process holds the lock.
      ConfigurationError: The lock file cannot be opened.
    """
    file = _acquire(folder, what, advice)
    if file is None:
        yield
        return
    try:
        yield
    finally:
        path = os.path.join(folder, LOCK_FILE)
        # Otherwise our file was removed with its folder, and another process owns the
        # file that is there now.
        if _is_at(path, file):
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(file)


def find_holder(folder: str) -> Holder | None:
    """Returns the process that holds the lock of a folder; None if none does."""
    with contextlib.suppress(OSError), open(os.path.join(folder, LOCK_FILE), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError, TypeError):
                return Holder(**json.load(file))
            return Holder()
    return None


def _acquire(folder: str, what: str, advice: str) -> int | None:
    """Returns the descriptor of the locked file; None where the folder has no locks."""
    if "://" in folder:
        return None
    path = os.path.join(folder, LOCK_FILE)
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            # Only its owner may open it: any user who can open it could hold the lock.
            # No symbolic links: they could lead anywhere.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            is_denied = error.errno in (errno.EACCES, errno.EPERM)
            if error.errno in _TAKES_NO_FILES or (is_denied and not os.path.lexists(path)):
                return None
            raise ConfigurationError(
                f"{what} {folder}: cannot open {path}, which keeps two runs from writing there ({error.strerror}); "
                f"if no run of another user is using the folder, remove that file; otherwise {advice}"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise InUseError(f"{what} {folder} is in use by {find_holder(folder) or Holder()}; {advice}") from None
        except OSError:  # this file system has no locks
            os.close(file)
            return None
        if _is_at(path, file):
            _write(file)
            return file
        os.close(file)  # its last holder has removed the file meanwhile


def _is_at(path: str, file: int) -> bool:
    """Returns True if an open file is still the one at a path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _write(file: int) -> None:
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), socket.gethostname(), since, shlex.join(sys.orig_argv))
    with contextlib.suppress(OSError):  # the lock holds without it
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(asdict(holder)).encode(), 0)
