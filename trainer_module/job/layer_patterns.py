r"""Parses the parameters that name layers by patterns, and applies the patterns.

    freeze: "embedding; block\d"
    base_model_mapping: "old_head = head"
    base_model_vocabularies: "embedding = words; user = user_id + 1"

A path names a layer from the model inwards, such as `encoder/block1/dense`; that of a
weight ends in its own name, such as `encoder/block1/dense/kernel`. A pattern is a
regular expression that has to match whole parts of a path: `dense` matches
`encoder/dense/kernel`, but not `dense_1/kernel`.

Importing this module does not import TensorFlow.
"""

import re
from collections.abc import Sequence

from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import pattern_rules
from tfx_distribute.trainer_module.job.parameters import TrainingOptions

Pattern = re.Pattern[str]


def parse_patterns(setting: str, text: str) -> tuple[Pattern, ...]:
    """Parses patterns that are separated by semicolons.

    ```python
    parse_patterns("freeze", "embedding; conv.*")
    ```

    Args:
      setting: Name of the parameter, for messages.
      text: `PATTERN; PATTERN`.

    Raises:
      ConfigurationError: A pattern is not a valid regular expression.
    """
    return tuple(_compile(setting, part.strip()) for part in text.split(";") if part.strip())


def parse_mapping(text: str) -> tuple[tuple[Pattern, str], ...]:
    """Parses `base_model_mapping`.

    Returns:
      Patterns for parts of paths in the base model, each with its replacement.

    Raises:
      ConfigurationError: The text is not valid.
    """
    rules = _parse_rules("base_model_mapping", text, "PATH = PATH", "old_head = head")
    for pattern, replacement in rules:
        try:
            pattern.sub(replacement, "")
        except (re.error, IndexError) as error:
            raise ConfigurationError(f"base_model_mapping: {replacement!r} is not a valid replacement: {error}") from error
    return rules


def parse_vocabularies(text: str) -> tuple[tuple[Pattern, str, int], ...]:
    """Parses `base_model_vocabularies`.

    ```python
    parse_vocabularies("user = user_id + 1")  # ((PATTERN, "user_id", 1),)
    ```

    Returns:
      Patterns for paths of weights, each with the name of a vocabulary and the row of
      the vocabulary's first entry.

    Raises:
      ConfigurationError: The text is not valid.
    """
    rules = []
    for pattern, value in _parse_rules("base_model_vocabularies", text, "PATTERN = VOCABULARY", "embedding = words"):
        offset = re.fullmatch(r"(.*?)\s*\+\s*(\d+)", value)
        if offset and not offset[1]:
            raise ConfigurationError(
                f"base_model_vocabularies: {value!r} names no vocabulary; write VOCABULARY + ROW, such as words + 1"
            )
        rules.append((pattern, offset[1], int(offset[2])) if offset else (pattern, value, 0))
    return tuple(rules)


def check(options: TrainingOptions) -> None:
    """Checks the parameters that name layers, as far as it needs no model.

    Raises:
      ConfigurationError: One of them is not valid.
    """
    parse_patterns("freeze", options.freeze)
    parse_mapping(options.base_model_mapping)
    parse_vocabularies(options.base_model_vocabularies)


def rename(rules: Sequence[tuple[Pattern, str]], path: str) -> str:
    """Returns a path with the first rule that matches it applied.

    ```python
    rename(parse_mapping("old_head = head"), "old_head/kernel")  # "head/kernel"
    ```
    """
    for pattern, replacement in rules:
        if pattern.search(path):
            return pattern.sub(replacement, path)
    return path


def _parse_rules(setting: str, text: str, form: str, example: str) -> tuple[tuple[Pattern, str], ...]:
    rules = pattern_rules.parse(setting, text, form, example)
    return tuple((_compile(setting, pattern), value) for pattern, value in rules)


def _compile(setting: str, pattern: str) -> Pattern:
    pattern_rules.check_pattern(setting, pattern)  # alone: its error has a position
    return re.compile(rf"(?:^|(?<=/))(?:{pattern})(?=/|$)")
