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
    from tfx_distribute.components.tuner.search import Search as Search
    from tfx_distribute.components.tuner.search import ValueRange as ValueRange
    from tfx_distribute.pipelines.python_api import compile_pipeline as compile_pipeline
    from tfx_distribute.pipelines.python_api import compile_spec as compile_spec
    from tfx_distribute.pipelines.python_api import load as load
    from tfx_distribute.pipelines.python_api import make_plan as make_plan
    from tfx_distribute.pipelines.python_api import run as run
    from tfx_distribute.pipelines.run_plan import RunPlan as RunPlan
    from tfx_distribute.pipelines.spec.beam import Beam as Beam
    from tfx_distribute.pipelines.spec.machines import MachineSpec as MachineSpec
    from tfx_distribute.pipelines.spec.machines import Toleration as Toleration
    from tfx_distribute.pipelines.spec.pipeline import BaseModelSpec as BaseModelSpec
    from tfx_distribute.pipelines.spec.pipeline import Change as Change
    from tfx_distribute.pipelines.spec.pipeline import Data as Data
    from tfx_distribute.pipelines.spec.pipeline import Evaluate as Evaluate
    from tfx_distribute.pipelines.spec.pipeline import LocalSettings as LocalSettings
    from tfx_distribute.pipelines.spec.pipeline import Metric as Metric
    from tfx_distribute.pipelines.spec.pipeline import Notify as Notify
    from tfx_distribute.pipelines.spec.pipeline import Parameters as Parameters
    from tfx_distribute.pipelines.spec.pipeline import PipelineSpec as PipelineSpec
    from tfx_distribute.pipelines.spec.pipeline import Push as Push
    from tfx_distribute.pipelines.spec.pipeline import Shards as Shards
    from tfx_distribute.pipelines.spec.pipeline import Targets as Targets
    from tfx_distribute.pipelines.spec.pipeline import Train as Train
    from tfx_distribute.pipelines.spec.pipeline import Transform as Transform
    from tfx_distribute.pipelines.spec.pipeline import Validate as Validate
    from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings as KubeflowSettings
    from tfx_distribute.pipelines.targets.kubeflow.settings import Secret as Secret
    from tfx_distribute.pipelines.targets.kubeflow.settings import SecurityContext as SecurityContext
    from tfx_distribute.pipelines.targets.kubeflow.settings import Volume as Volume
    from tfx_distribute.pipelines.targets.local.results import MetricResult as MetricResult
    from tfx_distribute.pipelines.targets.local.results import RunResult as RunResult
    from tfx_distribute.pipelines.targets.local.runner import NodeError as NodeError
    from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings as VertexSettings
    from tfx_distribute.trainer_module.errors import ConfigurationError as ConfigurationError

# `tfx-distribute --help` loads none of them.
__all__, __getattr__, __dir__ = lazy_names.export(__name__)
