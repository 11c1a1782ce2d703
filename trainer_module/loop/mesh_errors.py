"""Explains DTensor's errors about layouts and operations."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError, first_line


@contextlib.contextmanager
def explaining_unsupported_operations() -> Iterator[None]:
    """Turns DTensor's errors about layouts and operations into readable ones.

    Raises:
      ConfigurationError: DTensor does not support a layout rule or an operation.
    """
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        text = str(error)
        if "IteratorGetNext" in text:  # that reads examples
            raise
        operation = re.search(r"'tf\.(\w+)' op (?:does not implement layout propagation|ComputeLayout\w+ error)", text)
        if operation:
            message = (
                f"module: DTensor cannot divide the operation {operation[1]}, which the model uses; write the layer that it "
                "comes from"
            )
        elif layout := re.search(r"DTensor does not support [^\n]+", text):
            raise ConfigurationError(f"layout_rules: {layout[0].strip()}; write another rule") from error
        else:
            message = f"module: this fails under DTensor: {first_line(error)}; write the layer, loss, metric or callback"
        raise ConfigurationError(f"{message} in other operations, or use another strategy") from error
