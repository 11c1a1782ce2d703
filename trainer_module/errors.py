"""Defines the errors that are shown to users as messages.

Any other exception is a bug in this package or in a library, and keeps its traceback.
"""

import re

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
