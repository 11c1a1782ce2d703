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

from typing import TYPE_CHECKING

from tfx_distribute.trainer_module import lazy_names

if TYPE_CHECKING:
    from tfx_distribute.pipelines.plan.run_plan import RunPlan
    from tfx_distribute.pipelines.python_api import compile_pipeline, compile_spec, load, make_plan, run
    from tfx_distribute.pipelines.spec.beam import Beam
    from tfx_distribute.pipelines.spec.machines import MachineSpec, Toleration
    from tfx_distribute.pipelines.spec.pipeline import (
        BaseModelSpec,
        Change,
        Data,
        Evaluate,
        Metric,
        Notify,
        Parameters,
        PipelineSpec,
        Push,
        Shards,
        Train,
        Transform,
        Validate,
    )
    from tfx_distribute.pipelines.spec.targets import Targets
    from tfx_distribute.pipelines.spec.tune import Tune, TuneValues
    from tfx_distribute.pipelines.targets.kubeflow.settings import (
        KubeflowSettings,
        Secret,
        SecurityContext,
        Volume,
    )
    from tfx_distribute.pipelines.targets.local.results import MetricResult, RunResult
    from tfx_distribute.pipelines.targets.local.runner import NodeError
    from tfx_distribute.pipelines.targets.local.settings import LocalSettings
    from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
    from tfx_distribute.trainer_module.errors import ConfigurationError

__all__ = [
    "BaseModelSpec",
    "Beam",
    "Change",
    "ConfigurationError",
    "Data",
    "Evaluate",
    "KubeflowSettings",
    "LocalSettings",
    "MachineSpec",
    "Metric",
    "MetricResult",
    "NodeError",
    "Notify",
    "Parameters",
    "PipelineSpec",
    "Push",
    "RunPlan",
    "RunResult",
    "Secret",
    "SecurityContext",
    "Shards",
    "Targets",
    "Toleration",
    "Train",
    "Transform",
    "Tune",
    "TuneValues",
    "Validate",
    "VertexSettings",
    "Volume",
    "compile_pipeline",
    "compile_spec",
    "load",
    "make_plan",
    "run",
]

# `tfx-distribute --help` loads none of them.
__getattr__, __dir__ = lazy_names.export(
    __name__,
    {
        "..trainer_module.errors": ("ConfigurationError",),
        ".plan.run_plan": ("RunPlan",),
        ".python_api": ("compile_pipeline", "compile_spec", "load", "make_plan", "run"),
        ".targets.kubeflow.settings": ("KubeflowSettings", "Secret", "SecurityContext", "Volume"),
        ".targets.local.results": ("MetricResult", "RunResult"),
        ".targets.local.runner": ("NodeError",),
        ".targets.local.settings": ("LocalSettings",),
        ".targets.vertex.settings": ("VertexSettings",),
        ".spec.beam": ("Beam",),
        ".spec.machines": ("MachineSpec", "Toleration"),
        ".spec.pipeline": (
            "BaseModelSpec",
            "Change",
            "Data",
            "Evaluate",
            "Metric",
            "Notify",
            "Parameters",
            "PipelineSpec",
            "Push",
            "Shards",
            "Train",
            "Transform",
            "Validate",
        ),
        ".spec.targets": ("Targets",),
        ".spec.tune": ("Tune", "TuneValues"),
    },
)
