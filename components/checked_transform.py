"""Checks the names that a `preprocessing_fn` returns, before the data are transformed.

Transform traces the function before it reads anything. Without this check, the Trainer
would find a wrong label, after all data have been transformed and written.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from tfx.components.transform import executor_utils, labels

from tfx_distribute.trainer_module.errors import ConfigurationError


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> Any:
    """Calls the user's `preprocessing_fn` and returns what it has returned.

    `custom_config` has `preprocessing_fn`, the dotted path of the user's function, and
    `names`: name of a feature -> the parameter that names it.
    """
    module, _, name_of_function = custom_config["preprocessing_fn"].rpartition(".")
    function = getattr(importlib.import_module(module), name_of_function)
    # As TFX calls a function without settings, which may take `custom_config`.
    outputs = executor_utils.MaybeBindCustomConfig({labels.CUSTOM_CONFIG: None}, function)(inputs)
    if isinstance(outputs, Mapping):  # TFT refuses others
        for name, parameter in custom_config["names"].items():
            if name not in outputs:
                raise ConfigurationError(
                    f"{parameter}: {name_of_function} returns no feature {name!r}; it returns {', '.join(sorted(outputs))}"
                )
    return outputs
