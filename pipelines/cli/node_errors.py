"""A node's exception -> the few lines that a person needs."""

import traceback
from collections.abc import Iterator
from pathlib import Path

from tfx_distribute.trainer_module.errors import TfxDistributeError
from tfx_distribute.trainer_module.user_code import user_exit

MAX_LINES = 12


def explain(error: BaseException, module_folder: Path) -> str:
    """What failed, and where in the user's own code if it was there.

    Args:
      error: What a node raised.
      module_folder: Folder of the user's module.

    Returns:
      A few lines; messages that were written for people are given as they are.
    """
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, TfxDistributeError):
            return str(link)
    root = chain[-1]
    lines = [user_exit.describe(root) if isinstance(root, SystemExit) else f"{type(root).__name__}: {root}".strip()]
    own = [frame for frame in traceback.extract_tb(root.__traceback__) if Path(frame.filename).parent == module_folder]
    if own:
        lines += [f"  at {own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}", f"    {own[-1].line}"]
    shown = "\n".join(lines).splitlines()
    return "\n".join(shown[:MAX_LINES] + ["  ..."] * (len(shown) > MAX_LINES))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that led to it; the last is the first that happened."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
