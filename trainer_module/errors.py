"""Defines the errors that are shown to users as messages.

Any other exception is a bug in this package or in a library, and keeps its traceback.
"""

import contextlib
import errno
import re
from collections.abc import Iterator

# Lines of TensorFlow's messages that do not say what happened: blank ones, frames of a
# stack and their code, and headings.
_BOILERPLATE = re.compile(r"\s*$|\s+(?!\s|\(\d)|Graph execution error:|Detected at node |<stack traces|\d+ root error")


class TfxDistributeError(Exception):
    """Base class of the errors whose message is complete without a traceback.

    It says what was asked, what is wrong and what to write instead.
    """

    # AutoGraph replaces an error that is raised while it traces by one with a traceback
    # in its message, unless the error has this.
    ag_pass_through = True


class ConfigurationError(TfxDistributeError, ValueError):
    """A setting or a combination of settings cannot work. Raised before training."""


class TrainingError(TfxDistributeError, RuntimeError):
    """A training process failed. The message includes the end of its output."""


class PreemptedError(TfxDistributeError, RuntimeError):
    """This process was asked to stop and has saved its state for another try."""


class PeerLostError(TfxDistributeError, RuntimeError):
    """Another process of the cluster is gone. Another try may succeed."""


class DataError(TfxDistributeError, RuntimeError):
    """Examples cannot be read. The message names the file and, if known, the record."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message that says what happened.

    TensorFlow's messages begin with where that was, and add lines at the end.
    """
    lines = str(error).strip().splitlines()
    reasons = (line.strip() for line in lines if not _BOILERPLATE.match(line))
    return next(reasons, next(iter(lines), type(error).__name__))


def describe_shortage(error: BaseException) -> str | None:
    """Describes a full disk or too many open files, and what to do; None if neither.

    `error` is an `OSError`, or one of TensorFlow, which has its cause only as text.
    """
    if isinstance(error, TfxDistributeError):
        return None
    code = error.errno if isinstance(error, OSError) else None
    lines = [line.strip() for line in str(error).splitlines()]

    def matching_line(*codes: int, text: str) -> str | None:
        """Returns the line with `text`, without what TensorFlow's graph adds."""
        return next((line for line in lines if text in line), lines[0] if lines and code in codes else None)

    for text in ("No space left on device", "No usable temporary directory", "Disk quota exceeded"):
        if line := matching_line(errno.ENOSPC, errno.EDQUOT, text=text):
            return f"no space is left on the disk: {line}; free some"
    if line := matching_line(errno.EMFILE, errno.ENFILE, text="Too many open files"):
        return f"too many open files: {line}; raise the limit, for instance with `ulimit -n 4096`"
    return None


def as_shortage_error(error: BaseException) -> TrainingError | None:
    """Returns a `TrainingError` for a full disk or too many open files, else None."""
    shortage = describe_shortage(error)
    return TrainingError(f"{shortage}, then run the same command again") if shortage else None


@contextlib.contextmanager
def explaining_shortage() -> Iterator[None]:
    """Turns errors about a full disk or open files in the block into TrainingErrors."""
    try:
        yield
    except Exception as error:
        shortage = as_shortage_error(error)
        if shortage is None:
            raise
        raise shortage from error
