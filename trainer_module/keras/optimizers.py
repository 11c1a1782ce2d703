"""Finds a model's optimizers, also those within others, and sets them up."""

from collections.abc import Iterable
from typing import Any

from tfx_distribute.trainer_module.keras import attributes, keras_models


def find(first: Any, owners: Iterable[Any]) -> list[Any]:
    """Returns the optimizers that no other one delegates to, each once.

    `owners` have optimizers in their attributes, or in lists, dictionaries and plain
    objects in these.
    """
    parts = (first, *(value for owner in owners for _, value in attributes.walk(owner)))
    found = {id(part): part for part in parts if keras_models.is_optimizer(part)}
    inner = {id(each) for part in found.values() for each in with_inner(part)[1:]}
    return [part for part in found.values() if id(part) not in inner]


def unwrap(optimizer: Any) -> Any:
    """Returns the optimizer that has the learning rate, which a loss scale may wrap."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def with_inner(optimizer: Any) -> list[Any]:
    """Returns an optimizer, and those that it keeps, which it may delegate to.

    They may be in lists, dictionaries and plain objects in its attributes.
    """
    found: list[Any] = []
    pending = [optimizer]
    while pending:
        each = pending.pop()
        if keras_models.is_optimizer(each) and not any(each is other for other in found):
            found.append(each)
            pending += (value for _, value in attributes.walk(each))
    return found
