"""Explains DTensor's errors about layouts and operations."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line


@contextlib.contextmanager
def explaining_unsupported_operations() -> Iterator[None]:
    """Turns DTensor's errors about layouts and operations into ConfigurationErrors."""
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        text = str(error)
        layout = re.search(r"DTensor does not support [^\n]+", text)
        operation = re.search(r"'tf\.(\w+)' op (?:does not implement layout propagation|ComputeLayout\w+ error)", text)
        node = re.search(r"{{node ([^}]+)}}", text)
        is_of_mesh = node or "DTensor" in text or "got a regular tensor" in text
        if not (operation or is_of_mesh) or "IteratorGetNext" in text:  # that reads examples
            raise
        if layout:
            raise ConfigurationError(f"layout_rules: {layout[0].strip()}; write another rule") from error
        if operation:
            message = (
                f"module: DTensor cannot divide the operation {operation[1]}, which the model uses; write the layer that it "
                "comes from"
            )
        else:
            where = f"the operation {node[1]}" if node else "this"
            message = f"module: {where} fails under DTensor: {first_line(error)}; write the layer, loss, metric or callback"
        raise ConfigurationError(f"{message} in other operations, or use another strategy") from error
