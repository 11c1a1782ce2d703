"""Selects resources of the stand-in by the filters of list requests."""

import re
from collections.abc import Callable
from typing import Any

from vertex_errors import ApiError

_TERM = re.compile(r'(labels\.[\w-]+|\w+)\s*(!=|=|:)\s*(?:"([^"]*)"|([^\s"]+))')


def selector(text: str) -> Callable[[Any], bool]:
    """Returns a test for a filter.

    A filter has terms on labels, state, display_name and schedule_name, joined by AND.
    """
    terms = []
    for part in re.split(r"\s+AND\s+", text.strip()) if text.strip() else []:
        match = _TERM.fullmatch(part)
        key = re.sub(r"(?<!^)([A-Z])", r"_\1", match[1]).lower() if match and not match[1].startswith("labels.") else ""
        if not match or (key and (key not in ("state", "display_name", "schedule_name") or match[2] == ":")):
            raise ApiError(400, f"Invalid filter: {text}")
        terms.append((key or match[1], match[2], match[4] if match[3] is None else match[3]))

    def selects(resource: Any) -> bool:
        for key, operator, operand in terms:
            if key.startswith("labels."):
                value = resource.labels.get(key.removeprefix("labels."))
            else:
                value = resource.state.name if key == "state" else getattr(resource, key, None)
            if operator == ":":
                matches = value is not None and operand in ("*", value)
            else:
                matches = (value == operand) == (operator == "=")
            if not matches:
                return False
        return True

    return selects
