"""Defines a check: the requests that it needs, and how it judges the answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex.doctor.rest import UNREACHABLE, Answer, Request


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
      name: Name of the check, for people.
      requests: Requests that it needs.
      judge: Returns what follows from their answers.
    """

    name: str
    requests: tuple[Request, ...]
    judge: Callable[[Sequence[Answer]], Finding]


def passed(check: str, text: str) -> Finding:
    """Returns a finding that all is well."""
    return Finding(check, "pass", text)


def failed(check: str, text: str, remedy: str) -> Finding:
    """Returns a finding that keeps the pipeline from running."""
    return Finding(check, "fail", text, remedy)


def unknown(check: str, answer: Answer, permission: str = "") -> Finding:
    """Returns a finding for an answer that does not tell.

    Args:
      check: Name of the check.
      answer: The answer.
      permission: Permission that lets a person ask.
    """
    if answer.code == UNREACHABLE:
        return Finding(check, "unknown", f"there is no answer ({answer.message})")
    if service := answer.disabled_service:
        return Finding(
            check, "unknown", f"{service} is not enabled, so it cannot be asked", f"run `gcloud services enable {service}`"
        )
    remedy = f"ask somebody with {permission}" if permission and answer.code in (401, 403) else ""
    return Finding(check, "unknown", f"the answer is {answer.code} ({answer.message})", remedy)
