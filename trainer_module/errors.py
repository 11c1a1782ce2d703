"""The errors that a person is meant to read.

Everything else that is raised is a fault of ours or of a library and keeps its traceback.
"""

import contextlib
import errno
from collections.abc import Iterator


class TfxDistributeError(Exception):
    """Base of the errors whose message alone says what was asked, what is wrong and what to write instead."""


class ConfigurationError(TfxDistributeError, ValueError):
    """What was asked for cannot be run as written. Known before anything starts."""


class TrainingError(TfxDistributeError, RuntimeError):
    """A training process failed. The message holds the end of what it printed."""


class PreemptedError(TfxDistributeError, RuntimeError):
    """This process was told to leave, and has saved what it had. Another try goes on from there."""


class PeerLostError(TfxDistributeError, RuntimeError):
    """Another process of the cluster is gone, so that this one cannot go on. Another try may."""


class DataError(TfxDistributeError, RuntimeError):
    """Examples cannot be read as they are. The message names the file and, where there is one, the record."""


def as_shortage_error(error: BaseException) -> TrainingError | None:
    """Returns a message for a person where an error means a full disk or too many open files; None for any other.

    Args:
      error: An `OSError`, or an error of TensorFlow's, which has them as text only.
    """
    if isinstance(error, TfxDistributeError):
        return None
    code = error.errno if isinstance(error, OSError) else None
    lines = [line.strip() for line in str(error).splitlines()]

    def says(*codes: int, text: str) -> str | None:
        """Returns the line that says so, without what TensorFlow's graph adds to it."""
        return next((line for line in lines if text in line), lines[0] if lines and code in codes else None)

    for text in ("No space left on device", "No usable temporary directory", "Disk quota exceeded"):
        if line := says(errno.ENOSPC, errno.EDQUOT, text=text):
            return TrainingError(f"no space is left on the disk: {line}; free some, then run the same command again")
    if line := says(errno.EMFILE, errno.ENFILE, text="Too many open files"):
        return TrainingError(f"too many open files: {line}; raise the limit, for instance with `ulimit -n 4096`")
    return None


@contextlib.contextmanager
def explaining_shortage() -> Iterator[None]:
    """Within the block, an error that means a full disk or too many open files becomes one for a person.

    Raises:
      TrainingError: There was such an error.
    """
    try:
        yield
    except Exception as error:
        shortage = as_shortage_error(error)
        if shortage is None:
            raise
        raise shortage from error
