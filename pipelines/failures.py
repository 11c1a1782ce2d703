"""A node's exception -> the few lines that a person needs."""

import traceback
from pathlib import Path

from tfx_distribute.trainer_module.errors import TfxDistributeError

MOST_LINES = 12


def explain(error: BaseException, module_folder: Path) -> str:
    """What failed, and where in the user's own code if it was there.

    Args:
      error: What a node raised.
      module_folder: Folder of the user's module.

    Returns:
      A few lines; messages that were written for people are given as they are.
    """
    root = _root_cause(error)
    if isinstance(root, TfxDistributeError):
        return str(root)
    lines = [f"{type(root).__name__}: {root}".strip()]
    own = [frame for frame in traceback.extract_tb(root.__traceback__) if Path(frame.filename).parent == module_folder]
    if own:
        lines += [f"  at {own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}", f"    {own[-1].line}"]
    shown = "\n".join(lines).splitlines()
    return "\n".join(shown[:MOST_LINES] + ["  ..."] * (len(shown) > MOST_LINES))


def _root_cause(error: BaseException) -> BaseException:
    """The first of a chain of exceptions: later ones are reports of it."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return _root_cause(cause) if cause is not None else error
