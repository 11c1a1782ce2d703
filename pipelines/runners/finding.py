"""Defines the result of one check of a platform, for `tfx-distribute doctor`."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      check: Name of the check, such as `bucket gs://mine`.
      status: `unknown` if this person's credentials, or the platform, did not tell.
      text: What was found.
      remedy: What to do about it; empty if nothing is to be done.
    """

    check: str
    status: Status
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.status:8} {self.check}: {self.text}{remedy}"
