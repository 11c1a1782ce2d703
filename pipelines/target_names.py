"""Lists the targets: the platforms that pipelines run on.

The pipeline file has a section for each, so this module imports none of them: a class
is imported when it is asked for.
"""

from typing import Any

from tfx_distribute.components import plugins
from tfx_distribute.trainer_module.errors import ConfigurationError

GROUP = "tfx_distribute.targets"  # of entry points
# Name -> "module:class".
TARGETS: dict[str, str] = {
    "local": "tfx_distribute.pipelines.targets.local.target:LocalTarget",
    "kubeflow": "tfx_distribute.pipelines.targets.kubeflow.target:KubeflowTarget",
    "vertex": "tfx_distribute.pipelines.targets.vertex.target:VertexTarget",
}


def names() -> tuple[str, ...]:
    """Returns the names of all targets."""
    return tuple(plugins.find(GROUP, TARGETS))


def get(name: str) -> type[Any]:
    """Returns the class of a target, or raises a ConfigurationError."""
    targets = plugins.find(GROUP, TARGETS)
    if name not in targets:
        raise ConfigurationError(f"target: there is no target {name!r}; choose one of {', '.join(targets)}")
    target: type[Any] = targets[name].load()
    return target
