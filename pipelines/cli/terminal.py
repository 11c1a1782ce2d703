"""Keeps control characters of foreign texts from the terminal.

Log lines, names in data and messages of services may have escape sequences, which a
terminal would obey.
"""

import io
import re
from typing import Any, cast

# A progress bar of Keras overwrites its line, in bold.
_OVERWRITTEN = re.compile("[\r\x08]+\n?")
_STYLE = re.compile("\x1b\\[[0-9;]*m")
# All but tabs and line breaks, with those of the second half of Latin-1, and those that
# change the direction of a text.
_CONTROL = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069])(\\1{3,})?")


def escape(text: str) -> str:
    """Escapes control characters in a text; writes repeated ones once, with dots.

    Lines that overwrite each other, as of a progress bar, follow each other; colors and
    bold type are left out.
    """
    plain = _OVERWRITTEN.sub("\n", _STYLE.sub("", text))
    return _CONTROL.sub(lambda match: match[1].encode("unicode_escape").decode() + ("..." if match[2] else ""), plain)


class SafeStream(io.TextIOWrapper):
    """A stream that prints control characters, and what it cannot encode, as escapes.

    The stream that it writes to stays open.
    """

    def __init__(self, stream: io.TextIOWrapper):
        super().__init__(
            cast(Any, stream.buffer),
            encoding=stream.encoding,
            errors="backslashreplace",
            newline="",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # which would close the buffer if nothing refers to it

    def write(self, text: str) -> int:
        """Writes a text."""
        return super().write(escape(text))

    def close(self) -> None:
        """Leaves the stream open, as this object does not own it."""
        self.flush()
