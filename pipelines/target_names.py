"""Lists the targets: the platforms that pipelines run on.

A class is imported when it is asked for.
"""

import importlib
from typing import Any

from tfx_distribute.trainer_module.errors import ConfigurationError

# Name -> module and class.
TARGETS = {
    "local": ("tfx_distribute.pipelines.targets.local.target", "LocalTarget"),
    "kubeflow": ("tfx_distribute.pipelines.targets.kubeflow.target", "KubeflowTarget"),
    "vertex": ("tfx_distribute.pipelines.targets.vertex.target", "VertexTarget"),
}


def get(name: str) -> type[Any]:
    """Returns the class of a target, or raises a ConfigurationError."""
    if name not in TARGETS:
        raise ConfigurationError(f"target: there is no target {name!r}; choose one of {', '.join(TARGETS)}")
    module, class_name = TARGETS[name]
    target: type[Any] = getattr(importlib.import_module(module), class_name)
    return target
