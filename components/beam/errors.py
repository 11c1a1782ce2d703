"""Finds the exception that made a Beam pipeline fail.

Beam adds the name of a transform to its message. Workers pass it on as a printed
traceback, in the message of another exception.
"""

import re
from collections.abc import Iterator

from tfx_distribute.trainer_module import errors
from tfx_distribute.trainer_module.errors import TfxDistributeError

_TRANSFORM = r" \[while running '[^']*'\]"
_PRINTED = re.compile(
    rf"^{re.escape(errors.__name__)}\.(\w+): (.*?)"
    rf"(?:{_TRANSFORM}|\n\n(?:During handling of|The above exception was) |\s*\Z)",
    re.MULTILINE | re.DOTALL,
)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that led to it; the earliest comes last."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def find_own(error: BaseException) -> TfxDistributeError | None:
    """Returns the first error of this package in an exception's chain, if any.

    It has the message with which it was raised.
    """
    for link in chain(error):
        if isinstance(link, TfxDistributeError):
            message = re.sub(rf"{_TRANSFORM}\Z", "", str(link))
            return link if message == str(link) else type(link)(message)
        if printed := _PRINTED.search(str(link)):
            return getattr(errors, printed[1])(printed[2])
    return None
