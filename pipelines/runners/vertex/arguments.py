"""Checks values of a compiled pipeline's parameters before they are sent. Pure."""

import difflib
from collections.abc import Mapping
from typing import Any

from tfx_distribute.trainer_module.errors import ConfigurationError

_TYPES: dict[str, tuple[type, ...]] = {"INT": (int,), "DOUBLE": (int, float), "STRING": (str,)}
_NAMES = {"INT": "an integer", "DOUBLE": "a number", "STRING": "a string"}


def check(job: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Checks that a pipeline has these parameters, with values of these types.

    ```python
    check(job, {"epochs": "three"})  # raises: epochs is an integer
    ```

    Args:
      job: The compiled PipelineJob, of schema 2.0.0.
      arguments: Name -> value.

    Raises:
      ConfigurationError: A parameter does not exist, or a value is of another type.
    """
    declared = job["pipelineSpec"]["root"].get("inputDefinitions", {}).get("parameters", {})
    for name, value in arguments.items():
        if name not in declared:
            similar = difflib.get_close_matches(name, declared, 1)
            instead = f"did you mean {similar[0]}" if similar else f"there are {', '.join(sorted(declared)) or 'none'}"
            raise ConfigurationError(f"{name}: the pipeline has no such parameter; {instead}")
        kind = declared[name]["type"]
        if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
            raise ConfigurationError(f"{name}: {value!r} is not {_NAMES[kind]}, which this parameter of the pipeline is")
