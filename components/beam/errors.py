"""Finds the error of this package that another stands for.

Beam adds the name of a transform to a message. Its workers pass an error on as text, in
that of another one.
"""

import re

from tfx_distribute.trainer_module.errors import ConfigurationError, DataError, TfxDistributeError

# What follows a message.
_END = r" \[while running '[^']*'\]|\n\n(?:During handling of|The above exception was) |\s*\Z"


def original(error: BaseException) -> TfxDistributeError | None:
    """Returns the error of this package that an exception stands for, if any."""
    text = f"{type(error).__name__}: {error}"
    for error_type in (ConfigurationError, DataError):
        match = re.search(rf"^(?:[\w.]*\.)?{error_type.__name__}: (.*?)(?:{_END})", text, re.MULTILINE | re.DOTALL)
        if match:
            return error_type(match[1])
    return error if isinstance(error, TfxDistributeError) else None
