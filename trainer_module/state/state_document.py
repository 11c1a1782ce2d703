"""Keeps what trainings with other settings have saved next to this training's own.

A run whose number of workers is mistyped saves to the same folder as one that has
trained for hours, but their states do not fit each other. The JSON document of the
folder therefore contains the documents of other settings too, under `others`, so that
one atomic replacement changes them all:

    {"checkpoint": "step-10", "made_with": {...}, "others": [{"checkpoint": ...}]}
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfx_distribute.trainer_module.state import saved_step

Document = dict[str, Any]


def split(text: str | None, path: str, made_with: Mapping[str, Any]) -> tuple[Document | None, list[Document]]:
    """Returns the document of a training's settings, and those of others.

    `text` is the folder's document as JSON. The first is None if none is of these
    settings; the others begin with the newest. Raises TrainingError if the document is
    cut off.
    """
    if text is None:
        return None, []
    newest = saved_step.parse(text, path)
    documents = [newest, *newest.pop("others", [])]
    own = [document for document in documents if document.get("made_with") == made_with]
    return (own[0] if own else None), [document for document in documents if document not in own]


def join(own: Document, others: Sequence[Document]) -> str:
    """Returns the document of the folder as JSON, see `split`."""
    return json.dumps({**own, "others": list(others)}, indent=1)


def all_settings(text: str | None, path: str) -> list[dict[str, Any]]:
    """Returns the settings of all documents in the document of a folder."""
    own, others = split(text, path, {})
    return [document["made_with"] for document in (own, *others) if document]


def choose_name(name: str, taken: Collection[str]) -> str:
    """Returns a name for a checkpoint: `name`, or one like it that is not taken.

    ```python
    choose_name("step-10", ["step-10"])  # "step-10-2"
    ```
    """
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
    return next(each for each in names if each not in taken)
