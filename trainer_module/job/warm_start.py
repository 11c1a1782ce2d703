"""Defines how training starts from a base model, and matches the patterns in it.

A path names a layer from the model inwards, such as `encoder/block1/dense`; that of a
weight ends in its own name, such as `encoder/block1/dense/kernel`. A pattern is a
regular expression for whole parts of a path: `dense` matches `encoder/dense/kernel`,
but neither `dense_1/kernel` nor `my_dense/kernel`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from tfx_distribute.trainer_module.errors import ConfigurationError


@dataclass(frozen=True)
class WarmStart:
    """How training starts from the weights of a base model.

    ```python
    WarmStart(freeze=["conv_1", "norm_1"], rename={"old_head": "head"})
    ```

    Attributes:
      freeze: Patterns of layers that are not trained, nor what is in them.
      rename: Pattern for parts of the base model's paths -> their new name. The first
        one that matches a weight counts.
      vocabularies: Pattern of an embedding, or of the layer whose outputs are classes
        -> `vocab_filename` of the vocabulary that its rows or outputs belong to; or, if
        the first entry is not in row 0, a mapping of that name -> the row of the first
        entry.
      mismatch: With `fail`, a base model that differs is refused; with `skip`, the
        weights that correspond are taken.

    Raises:
      ConfigurationError: A pattern or a replacement is not valid.
    """

    freeze: Sequence[str] = field(default_factory=list)
    rename: Mapping[str, str] = field(default_factory=dict)
    vocabularies: Mapping[str, str | Mapping[str, int]] = field(default_factory=dict)
    mismatch: Literal["fail", "skip"] = "fail"

    def __post_init__(self) -> None:
        for setting in ("freeze", "rename", "vocabularies"):
            for pattern in getattr(self, setting):
                try:
                    re.compile(pattern)  # alone: its error has a position
                    _compile(pattern).sub(self.rename.get(pattern, ""), "")
                except (re.error, IndexError) as error:
                    raise ConfigurationError(f"base_model.{setting}: {pattern!r} is not valid: {error}") from error

    def to_json(self) -> str:
        """Returns a JSON object; empty if all settings have their defaults."""
        return json.dumps(asdict(self)) if self != WarmStart() else ""

    @staticmethod
    def from_json(text: str) -> "WarmStart":
        """Reads the settings from what `to_json` returns."""
        return WarmStart(**json.loads(text or "{}"))

    def rename_path(self, path: str) -> str:
        """Returns a path of the base model with its new names."""
        pattern = next((pattern for pattern in self.rename if matches(pattern, path)), None)
        return path if pattern is None else _compile(pattern).sub(self.rename[pattern], path)


def matches(pattern: str, path: str) -> bool:
    """Returns True if a pattern matches whole parts of a path."""
    return _compile(pattern).search(path) is not None


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|(?<=/))(?:{pattern})(?=/|$)")
