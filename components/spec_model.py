"""Defines the base class of the sections of a pipeline file."""

import reprlib
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Scalar = bool | int | float | str

FROM_FILE = "from_file"  # key of the validation context: the values are those of a file


def _check_scalar(value: Any) -> Any:
    """Checks that a value is a scalar; pydantic would print a message for each type."""
    if not isinstance(value, Scalar):
        raise ValueError(f"{reprlib.repr(value)} is not allowed; write a number, text, true or false")
    return value


ScalarValue = Annotated[Scalar, BeforeValidator(_check_scalar)]


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Returns the fields of a model by their keys in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


class SpecModel(BaseModel):
    """A part of a pipeline file.

    Unknown keys are errors, values are never converted to another type, and attribute
    docstrings become descriptions in the JSON schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, validate_default=True)

    # Keys that a pipeline file may set to `null`. Any other empty key is a mistake: the
    # lines below it may have been commented out.
    NULLABLE: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _check_not_empty(cls, values: Any, info: ValidationInfo) -> Any:
        if (info.context or {}).get(FROM_FILE) and isinstance(values, dict):
            for key, value in values.items():
                if value is None and key in fields_by_key(cls) and key not in cls.NULLABLE:
                    raise ValueError(f"{key}: is empty; write a value ({{}} for a section's defaults), or leave the key out")
        return values

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Returns the JSON schema, in which only the keys `NULLABLE` may be null."""
        schema = handler(core_schema)
        for name, key in handler.resolve_ref_schema(schema).get("properties", {}).items():
            if name not in cls.NULLABLE and {"type": "null"} in key.get("anyOf", ()):
                key["anyOf"].remove({"type": "null"})
                key.pop("default")  # null
        return schema
