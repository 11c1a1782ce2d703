"""Explains an exception of a pipeline node in a few lines."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.user_code import user_exit

MAX_LINES = 12


def explain(error: BaseException, module_folder: Path) -> str:
    """Returns the first error of a chain, and its line in the user's code, if any.

    Returns at most about `MAX_LINES` lines, and the message of a `TfxDistributeError`
    unchanged.
    """
    chain = list(_follow_chain(error))
    for link in chain:
        if isinstance(link, TfxDistributeError):
            return str(link)
    root = chain[-1]
    lines = [user_exit.describe(root) if isinstance(root, SystemExit) else f"{type(root).__name__}: {root}".strip()]
    frames = traceback.extract_tb(root.__traceback__)
    user_frames = [frame for frame in frames if Path(frame.filename).parent == module_folder]
    if user_frames:
        frame = user_frames[-1]
        lines += [f"  at {frame.filename}, line {frame.lineno}, in {frame.name}", f"    {frame.line}"]
    lines = "\n".join(lines).splitlines()
    return "\n".join(lines[:MAX_LINES] + ["  ..."] * (len(lines) > MAX_LINES))


def _follow_chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that led to it; the earliest comes last."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
