"""Reports the last line that a `run_fn` has printed: nothing else is known of it."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter

MAX_LENGTH = 160
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_EPOCH = re.compile(r"Epoch \d+/\d+")  # a line of Keras, above those about the epoch's steps


@contextlib.contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Reports lines of standard output, within the block, as often as training does.

    Only for a launcher on this machine: elsewhere, standard output has the reports.
    """
    if not reporter.writes_file:
        yield
        return

    def report(line: str) -> None:
        if reporter.due():
            reporter.show(Progress("run_fn", activity=line))

    with contextlib.redirect_stdout(cast(TextIO, _Output(sys.stdout, report))):
        yield


class _Output:
    """Standard output that passes on each line that it writes."""

    def __init__(self, stream: TextIO, report: Callable[[str], None]):
        self._stream, self._report = stream, report
        self._line = self._epoch = ""

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        *lines, self._line = (self._line + text).replace("\b", "").replace("\r", "\n").split("\n")
        for line in filter(None, (_COLORS.sub("", line).strip() for line in lines)):
            if _EPOCH.fullmatch(line):
                self._epoch = f"{line}  "
            else:
                self._report(f"{self._epoch}{line}"[:MAX_LENGTH])
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
