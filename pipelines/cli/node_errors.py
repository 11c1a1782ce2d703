"""Explains an exception of a pipeline node in a few lines."""

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tfx_distribute.components.beam import errors
from tfx_distribute.trainer_module.user_code import user_exit

MAX_LINES = 12
_TRACEBACK = "Traceback (most recent call last):\n"


def explain(error: BaseException, module_folder: Path) -> str:
    """Returns the first error of a chain, and its line in the user's code, if any.

    Returns at most about `MAX_LINES` lines, and the message of a `TfxDistributeError`
    unchanged. Errors of Beam's workers, which are text, count like all others.
    """
    chain = list(_follow_chain(error))
    for link in chain:
        if original := errors.original(link):
            return str(original)
    root = chain[-1]
    message, frames = _parse(str(root)) if _TRACEBACK in str(root) else _inspect(root)
    lines = [message]
    user_frames = [frame for frame in frames if Path(frame.file).parent == module_folder]
    if user_frames:
        frame = user_frames[-1]
        lines += [f"  at {frame.file}, line {frame.line}, in {frame.function}", f"    {frame.code}"]
    lines = "\n".join(lines).splitlines()
    return "\n".join(lines[:MAX_LINES] + ["  ..."] * (len(lines) > MAX_LINES))


class _Frame(NamedTuple):
    file: str
    line: str
    function: str
    code: str


def _inspect(error: BaseException) -> tuple[str, list[_Frame]]:
    frames = [
        _Frame(frame.filename, str(frame.lineno), frame.name, frame.line or "")
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return user_exit.describe(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}".strip(), frames


def _parse(text: str) -> tuple[str, list[_Frame]]:
    """Returns the message and the frames of the first error of a printed chain."""
    first = re.split("\n\n(?:During handling of|The above exception)", text.partition(_TRACEBACK)[2])[0]
    frames = [_Frame(*match) for match in re.findall(r'^  File "(.+)", line (\d+), in (.+)\n    (.+)', first, re.MULTILINE)]
    message = re.sub(r"\A(?: .*\n)+", "", first).strip()
    return re.sub(r"\A(?:\w+\.)+(?=\w+:)", "", message), frames


def _follow_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that led to it; the earliest comes last."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
