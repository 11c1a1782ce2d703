"""Keeps two live runs from writing to the same folder.

The lock is an advisory one of the operating system (`flock`) on a file in the folder. It ends with the process that holds
it, however that ends, so that a run that was killed never blocks the next. The file names its holder for messages.
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

from tfx_distribute.trainer_module.errors import ConfigurationError

LOCK_FILE = ".lock"

# Errors of a folder that takes no lock file: what has to be written there says so, and a run that only reads may go on.
_TAKES_NO_FILES = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOSYS, errno.ENOTSUP)

# A process that another one has just started may share its lock for a moment, also when the other was killed meanwhile; and
# a new holder writes its name after taking the lock.
_UNNAMED_SECONDS = 5.0
_RETRY_SECONDS = 0.05

_held: set[int] = set()  # descriptors of the files of locks that this process holds


def _release_in_fork() -> None:
    """A fork shares the lock, and would keep it when it outlives its parent."""
    for file in _held:
        os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_fork)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock.

    Attributes:
      pid: Its process id.
      host: Name of its machine.
      since: When it took the lock, ISO 8601.
      command: Its command line.
    """

    pid: int
    host: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, running since {self.since}: {self.command}"


@contextlib.contextmanager
def exclusive(folder: str, what: str, advice: str) -> Iterator[None]:
    """Holds the lock of a folder within the block.

    Object stores (`gs://`) and file systems without locks have none; there the block runs without it.

    Args:
      folder: Folder to lock; made if it is missing.
      what: What the folder is, for the message, such as `the run folder`.
      advice: What to do where it is taken.

    Raises:
      ConfigurationError: Another live process holds the lock, or the lock file cannot be opened.

    Example:
      >>> with exclusive("runs/taxi", "the run folder", "wait until it ends, or write another --root"):
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
            if _is_at(path, file):  # else it was removed with its folder, and a file there now is another's
                with contextlib.suppress(OSError):
                    os.unlink(path)
            os.close(file)


def _acquire(folder: str, what: str, advice: str) -> int | None:
    if "://" in folder:
        return None
    path = os.path.join(folder, LOCK_FILE)
    give_up_at = time.monotonic() + _UNNAMED_SECONDS
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            # Of its owner alone: a stranger who could open it could hold the lock. A link could lead anywhere.
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
            if holder is None and time.monotonic() < give_up_at:
                time.sleep(_RETRY_SECONDS)
                continue
            raise ConfigurationError(f"{what} {folder} is in use by {holder or 'another process'}; {advice}") from None
        except OSError:  # no locks on this file system
            os.close(file)
            return None
        if _is_at(path, file):
            _write(file)
            return file
        os.close(file)  # its holder removed the file in the meantime


def _is_at(path: str, file: int) -> bool:
    """Returns True if an open file is still the one at a path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _write(file: int) -> None:
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    holder = Holder(os.getpid(), socket.gethostname(), since, shlex.join(sys.orig_argv))
    with contextlib.suppress(OSError):  # the lock counts, not the name of its holder
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(asdict(holder)).encode(), 0)


def _read(file: int) -> Holder | None:
    """Returns the holder that a lock file names; None where it names none that lives."""
    try:
        holder = Holder(**json.loads(os.pread(file, 65536, 0)))
        if holder.host == socket.gethostname():
            os.kill(holder.pid, 0)
    except PermissionError:  # of another user's process
        return holder
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    return holder
