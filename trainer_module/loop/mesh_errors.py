"""Explains DTensor's errors about layouts and operations."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from tfx_distribute.trainer_module.errors import ConfigurationError


@contextlib.contextmanager
def explaining_unsupported_operations() -> Iterator[None]:
    """Turns DTensor's errors about layouts and operations into readable ones.

    Raises:
      ConfigurationError: DTensor does not support a layout rule or an operation.
    """
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        explanation = explain(str(error))
        if not explanation:
            raise
        raise ConfigurationError(explanation) from error


def explain(text: str) -> str:
    """Returns a message about what DTensor does not support.

    Args:
      text: The text of TensorFlow's error.

    Returns:
      An empty string if the error is not known.
    """
    layout_error = re.search(r"DTensor does not support [^\n]+", text)
    if layout_error:
        return f"layout_rules: {layout_error[0].strip()}; write another rule"
    operation = re.search(r"'tf\.(\w+)' op (?:does not implement layout propagation|ComputeLayout\w+ error)", text)
    if operation:
        return (
            f"module: DTensor cannot divide the operation {operation[1]}, which the model uses; write the layer that it "
            "comes from in other operations, or use another strategy"
        )
    if "non-replicated DTensor" in text:
        return (
            "module: a callback or a metric reads a tensor that is divided over the mesh; read variables with get_weights() "
            "or numpy(), or use another strategy"
        )
    if "got a regular tensor" in text:
        return (
            "module: DTensor cannot use a tensor that was made outside of the function that uses it; make it in the "
            "layer, the metric or the function itself, or use another strategy"
        )
    failed = re.search(r"([^\n]+)\n[^\n]*{{node ([^}]+)}}", text)
    if failed and "IteratorGetNext" not in text:  # that reads examples
        return (
            f"module: the operation {failed[2]} fails under DTensor ({failed[1].strip()}); write the layer, the loss or the "
            "metric that it comes from in other operations, or use another strategy"
        )
    return ""
