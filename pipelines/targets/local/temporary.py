"""Makes a temporary folder for a run and removes it with the run."""

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
    """Makes a temporary folder for this process and its children, and removes it.

    It is in the system's temporary folder, where paths are short enough for Unix
    sockets, and only its owner can read it. Folders of runs that were killed are
    removed, too.

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
        parent = Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        folder, lock = _make_locked_folder(parent)
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


def _make_locked_folder(parent: Path) -> tuple[Path, int]:
    """Makes and locks a folder; returns it and the descriptor that holds the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)
        # Another run removed it as abandoned before it was locked.


def _remove_abandoned(parent: Path) -> None:
    """Removes folders of this user's runs that have ended.

    They can be locked, because the kernel releases a lock when its process ends.
    """
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
