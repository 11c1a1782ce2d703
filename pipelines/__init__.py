"""Describes, checks, plans, compiles and runs pipelines.

```python
from tfx_distribute.pipelines import load, run

spec = load("pipeline.yaml", {"strategy": "mirrored", "accelerator_count": 2})
result = run(spec)
print(result.pushed)
```

Importing this package imports neither TFX nor TensorFlow, and neither does describing
a pipeline with its classes. docs/python-api.md documents the names.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_distribute.pipelines.plan.run_plan import RunPlan
    from tfx_distribute.pipelines.python_api import compile_pipeline, compile_spec, load, make_plan, run
    from tfx_distribute.pipelines.runners.kubeflow.settings import GangScheduling, KubeflowSettings, Secret, Volume
    from tfx_distribute.pipelines.runners.local.results import MetricResult, RunResult
    from tfx_distribute.pipelines.runners.local.runner import NodeError
    from tfx_distribute.pipelines.runners.local.settings import LocalSettings
    from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
    from tfx_distribute.pipelines.spec.beam import Beam
    from tfx_distribute.pipelines.spec.machines import MachineSpec, Toleration
    from tfx_distribute.pipelines.spec.pipeline import (
        Change,
        Data,
        Evaluate,
        Metric,
        Parameters,
        PipelineSpec,
        Push,
        Shards,
        Trainer,
        Transform,
    )
    from tfx_distribute.pipelines.spec.targets import Targets
    from tfx_distribute.trainer_module.errors import ConfigurationError

_PACKAGE = __name__.rpartition(".")[0]

# Module -> names. Loaded on first use, so that `tfx-distribute --help` loads none.
_NAMES = {
    "pipelines.plan.run_plan": ("RunPlan",),
    "pipelines.python_api": (
        "compile_pipeline",
        "compile_spec",
        "load",
        "make_plan",
        "run",
    ),
    "pipelines.runners.local.results": (
        "MetricResult",
        "RunResult",
    ),
    "pipelines.runners.local.runner": ("NodeError",),
    "pipelines.spec.beam": ("Beam",),
    "pipelines.spec.machines": (
        "MachineSpec",
        "Toleration",
    ),
    "pipelines.spec.pipeline": (
        "Change",
        "Data",
        "Evaluate",
        "Metric",
        "Parameters",
        "PipelineSpec",
        "Push",
        "Shards",
        "Trainer",
        "Transform",
    ),
    "pipelines.runners.kubeflow.settings": ("GangScheduling", "KubeflowSettings", "Secret", "Volume"),
    "pipelines.runners.local.settings": ("LocalSettings",),
    "pipelines.runners.vertex.settings": ("VertexSettings",),
    "pipelines.spec.targets": ("Targets",),
    "trainer_module.errors": ("ConfigurationError",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Beam",
    "Change",
    "ConfigurationError",
    "Data",
    "Evaluate",
    "GangScheduling",
    "KubeflowSettings",
    "LocalSettings",
    "MachineSpec",
    "Metric",
    "MetricResult",
    "NodeError",
    "Parameters",
    "PipelineSpec",
    "Push",
    "RunPlan",
    "RunResult",
    "Secret",
    "Shards",
    "Targets",
    "Toleration",
    "Trainer",
    "Transform",
    "VertexSettings",
    "Volume",
    "compile_pipeline",
    "compile_spec",
    "load",
    "make_plan",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{_PACKAGE}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
