"""Parses parameters that consist of rules, each a regular expression and a value.

    base_model_mapping: "old_head = head"
    layout_rules: "hidden.*kernel = unsharded, model; hidden.*bias = model"

Importing this module does not import TensorFlow.
"""

import re

from tfx_distribute.trainer_module.errors import ConfigurationError


def parse(setting: str, text: str, form: str, example: str) -> tuple[tuple[str, str], ...]:
    """Parses rules that are separated by semicolons.

    ```python
    parse("layout_rules", "bias = model", "PATTERN = DIMENSION, ...", "bias = model")
    # (("bias", "model"),)
    ```

    Args:
      setting: Name of the parameter, for messages.
      text: `PATTERN = VALUE; PATTERN = VALUE`.
      form: Form of a rule, for messages.
      example: A valid rule, for messages.

    Returns:
      Patterns, which are valid regular expressions, each with its value.

    Raises:
      ConfigurationError: The text is not valid.
    """
    rules = []
    for rule in filter(str.strip, text.split(";")):
        pattern, _, value = (part.strip() for part in rule.rpartition("="))
        if not pattern or not value:
            raise ConfigurationError(f"{setting}: {rule.strip()!r} is not a valid rule; write {form}, such as {example}")
        check_pattern(setting, pattern)
        rules.append((pattern, value))
    return tuple(rules)


def check_pattern(setting: str, pattern: str) -> None:
    """Checks a regular expression.

    Args:
      setting: Name of the parameter that has it, for messages.
      pattern: The regular expression.

    Raises:
      ConfigurationError: It is not valid.
    """
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{setting}: {pattern!r} is not a valid regular expression: {error}") from error
