"""Explains an exception of a pipeline node in a few lines."""

import re
import traceback
from pathlib import Path

from tfx_distribute.components.beam import errors
from tfx_distribute.trainer_module.user_code import user_exit

MAX_LINES = 12
_TRACEBACK = "Traceback (most recent call last):\n"


def explain(error: BaseException, module_folder: Path) -> str:
    """Returns the first error of a chain, and its line in the user's code, if any."""
    if own := errors.find_own(error):
        return str(own)
    root = [*errors.chain(error)][-1]
    message, frames = _parse(str(root)) if _TRACEBACK in str(root) else _inspect(root)
    lines = [message]
    user_frames = [frame for frame in frames if Path(frame.filename).parent == module_folder]
    if user_frames:
        frame = user_frames[-1]
        lines += [f"  at {frame.filename}, line {frame.lineno}, in {frame.name}", f"    {frame.line}"]
    lines = "\n".join(lines).splitlines()
    return "\n".join(lines[:MAX_LINES] + ["  ..."] * (len(lines) > MAX_LINES))


def _inspect(error: BaseException) -> tuple[str, list[traceback.FrameSummary]]:
    message = user_exit.describe(error) if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}".strip()
    return message, list(traceback.extract_tb(error.__traceback__))


def _parse(text: str) -> tuple[str, list[traceback.FrameSummary]]:
    """Returns the message and the frames of the first exception of a printed chain."""
    first = re.split("\n\n(?:During handling of|The above exception)", text.partition(_TRACEBACK)[2])[0]
    frames = [
        traceback.FrameSummary(file, int(number), name, line=line)
        for file, number, name, line in re.findall(r'^  File "(.+)", line (\d+), in (.+)\n    (.+)', first, re.MULTILINE)
    ]
    message = re.sub(r"\A(?: .*\n)+", "", first).strip()
    return re.sub(r"\A(?:\w+\.)+(?=\w+:)", "", message), frames
