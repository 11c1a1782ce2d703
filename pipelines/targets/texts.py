"""Defines texts of a target's settings that have to match a pattern."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True)
class Matching:
    """Refuses texts that do not match a pattern, with what to write instead.

    ```python
    Name = Annotated[str, Matching(r"^[a-z]+$", "lower-case letters")]
    ```

    Attributes:
      pattern: The pattern, from `^` to `$`, for the JSON Schema too.
      advice: What to write.
      max_length: Most characters of the text.
    """

    pattern: str
    advice: str
    max_length: int = 253

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, text: str) -> str:
        if len(text) > self.max_length or not re.fullmatch(self.pattern, text):
            raise PydanticCustomError("text", "write {advice}", {"advice": self.advice})
        return text


# Source: https://github.com/distribution/reference
_REGISTRY = r"(([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|localhost)(:[0-9]+)?|[A-Za-z0-9-]+:[0-9]+)/"
_REPOSITORY = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_IMAGE = rf"^({_REGISTRY})?{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$"

Image = Annotated[
    str, Matching(_IMAGE, "an image such as registry.example.com/team/digits:1, whose name has no capitals and spaces", 4096)
]
