"""Keeps two live runs from writing to the same folder.

The lock is an advisory lock of the operating system (`flock`) on a file in the folder.
It ends with the process that holds it, even one that is killed, so that a killed run
never blocks the next. For messages, the file names the process that holds the lock.
"""

import contextlib
import errno
import fcntl
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from tfx_distribute.components import timeouts
from tfx_distribute.trainer_module.errors import ConfigurationError

LOCK_FILE = ".lock"

# Errors of a folder where a lock file cannot be created. The run continues without a
# lock: a run that writes there will fail at that, and one that only reads may continue.
_TAKES_NO_FILES = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOSYS, errno.ENOTSUP)

_held: set[int] = set()  # file descriptors of the locks that this process holds


def _release_in_fork() -> None:
    """Releases the locks in a forked child, which could outlive its parent."""
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_fork)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, and since when, as ISO 8601."""

    pid: int
    host: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, running since {self.since}: {self.command}"


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

    Example:
      >>> advice = "wait until it ends, or write another --root"
      >>> with exclusive("runs/taxi", "the run folder", advice):
      ...     run()
    """
    file = _acquire(folder, what, advice)
    if file is None:
        yield
        return
    _held.add(file)
    try:
        yield
    finally:
        if file in _held:
            _held.remove(file)
            path = os.path.join(folder, LOCK_FILE)
            # Otherwise our file was removed with its folder, and another process owns
            # the file that is there now.
            if _is_at(path, file):
                with contextlib.suppress(OSError):
                    os.unlink(path)
            os.close(file)


def _acquire(folder: str, what: str, advice: str) -> int | None:
    """Returns the descriptor of the locked file; None where the folder has no locks."""
    if "://" in folder:
        return None
    path = os.path.join(folder, LOCK_FILE)
    started = time.monotonic()
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
            holder = _read(file)
            os.close(file)
            if holder is None and time.monotonic() - started < timeouts.LOCK_SECONDS:
                time.sleep(timeouts.LOCK_POLL_SECONDS)
                continue
            raise InUseError(f"{what} {folder} is in use by {holder or 'another process'}; {advice}") from None
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
    """Writes who holds the lock."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), socket.gethostname(), since, shlex.join(sys.orig_argv))
    with contextlib.suppress(OSError):  # the lock holds without it
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(asdict(holder)).encode(), 0)


def _read(file: int) -> Holder | None:
    """Returns the live process that a lock file names; None if there is none."""
    try:
        holder = Holder(**json.loads(os.pread(file, 65536, 0)))
        if holder.host == socket.gethostname():
            os.kill(holder.pid, 0)
    except PermissionError:  # the process belongs to another user
        return holder
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    return holder
