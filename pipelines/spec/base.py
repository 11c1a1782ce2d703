"""Defines the base class of all models of a pipeline file."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

from tfx_distribute.pipelines.spec.files import shorten

Scalar = bool | int | float | str


def _check_scalar(value: Any) -> Any:
    """Checks that a value is a scalar; pydantic would print a message for each type."""
    if not isinstance(value, Scalar):
        raise ValueError(f"{shorten(repr(value))} is not allowed; write a number, text, true or false")
    return value


ScalarValue = Annotated[Scalar, BeforeValidator(_check_scalar)]

_MAX_INT = 2**63 - 1  # limit of ML Metadata and of protocol buffers


class SpecModel(BaseModel):
    """A part of a pipeline file.

    Unknown keys are errors, values are never converted to another type, and attribute
    docstrings become descriptions in the JSON schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, validate_default=True)

    @field_validator("*")
    @classmethod
    def _check_fits_in_64_bits(cls, value: Any) -> Any:
        if isinstance(value, int) and not -_MAX_INT - 1 <= value <= _MAX_INT:
            raise ValueError(f"is beyond 64 bits; write at most {_MAX_INT}")
        return value
