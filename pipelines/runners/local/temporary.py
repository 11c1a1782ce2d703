"""Gives a run a temporary folder of its own, which goes with the run."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tfx_distribute.trainer_module.errors import ConfigurationError

PREFIX = "tfxd-run-"
_VARIABLE = "TMPDIR"


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Makes a new folder the temporary one of this process and of those that it starts, and removes it afterwards.

    It lies in the system's temporary folder, where paths are short enough for Unix sockets, and only its owner can read it.
    Folders of runs that were killed are removed too.

    ```python
    with run_folder():
        tempfile.mkdtemp()  # is removed at the end of the block
    ```

    Yields:
      The folder.

    Raises:
      ConfigurationError: The system has no temporary folder that can be written to.
    """
    tempdir_before, variable_before = tempfile.tempdir, os.environ.get(_VARIABLE)
    tempfile.tempdir = None  # Python remembers the folder, even after it is gone
    try:
        system = Path(tempfile.gettempdir())
        _remove_abandoned(system)
        folder, lock = _make(system)
    except OSError as error:
        raise ConfigurationError(
            f"cannot make a temporary folder: {error.strerror}; set TMPDIR to a folder with space that you can write to"
        ) from error
    finally:
        tempfile.tempdir = tempdir_before
    try:
        tempfile.tempdir = os.environ[_VARIABLE] = str(folder)
        yield folder
    finally:
        tempfile.tempdir = tempdir_before
        if variable_before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = variable_before
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make(system: Path) -> tuple[Path, int]:
    """Makes a folder and locks it; returns it with the descriptor that holds the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=system))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder, lock
        os.close(lock)  # another run took it for abandoned before it was locked


def _remove_abandoned(system: Path) -> None:
    """Removes folders of this user's runs that have ended: the kernel releases a lock with its process."""
    for folder in system.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
