"""Checks that the quotas of a region suffice for a pipeline's training. Pure.

Quotas of Vertex AI are its own, not those of Compute Engine, and are 0 for most GPUs of
a new project. Source: https://cloud.google.com/vertex-ai/docs/quotas
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_distribute.pipelines.runners.finding import Finding
from tfx_distribute.pipelines.runners.vertex.doctor.check import Check, failed, passed, unknown
from tfx_distribute.pipelines.runners.vertex.doctor.rest import Answer, Request, quoted
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings

_SERVICE = "aiplatform.googleapis.com"
_UNLIMITED = -1
# Machines of the second are never taken away, but the quota is the same. Source:
# https://cloud.google.com/vertex-ai/docs/training/schedule-jobs-dws#quota
_PREEMPTIBLE = ("SPOT", "FLEX_START")
# Families of machines whose metric is known. Those that come with GPUs are left out:
# the quota of their GPUs is the one that is used up.
_CPU_METRICS = {"n1": "cpus", "e2": "cpus", "n2": "n2_cpus", "c2": "c2_cpus"}
_ACCELERATOR_METRICS = {
    "NVIDIA_H100_80GB": "nvidia_h100_gpus",
    "NVIDIA_H100_MEGA_80GB": "nvidia_h100_mega_gpus",
    "NVIDIA_H200_141GB": "nvidia_h200_gpus",
    "TPU_V3": "tpu_v3",
}
_TPU_METRICS = {"ct5lp": "tpu_v5e", "ct6e": "tpu_v6e"}


def find_demand(custom_job: Mapping[str, Any]) -> Counter[str]:
    """Returns what a CustomJob takes from quotas: metric -> amount.

    Args:
      custom_job: The CustomJob, as JSON values.
    """
    spec = custom_job["job_spec"]
    kind = "preemptible_" if spec.get("scheduling", {}).get("strategy") in _PREEMPTIBLE else ""
    demand: Counter[str] = Counter()
    for pool in spec["worker_pool_specs"]:
        for name, amount in _machine_demand(pool.get("machine_spec", {})).items():
            demand[f"{_SERVICE}/custom_model_training_{kind}{name}"] += amount * pool.get("replica_count", 0)
    return demand


def find_step_demand(accelerator: Mapping[str, Any] | None) -> Counter[str]:
    """Returns what a step that trains takes from quotas; the service chooses its CPUs.

    Args:
      accelerator: Type and count in the step's resources; None for none.
    """
    if not accelerator:
        return Counter()
    name = _metric(str(accelerator["type"]))
    return Counter({f"{_SERVICE}/custom_model_training_{name}": int(accelerator["count"])})


def _machine_demand(machine: Mapping[str, Any]) -> Counter[str]:
    demand: Counter[str] = Counter()
    machine_type = str(machine.get("machine_type", ""))
    family, _, rest = machine_type.partition("-")
    size = re.search(r"-(\d+)$", rest)
    if family in _CPU_METRICS and size:
        demand[_CPU_METRICS[family]] += int(size[1])
    accelerator = str(machine.get("accelerator_type", ""))
    if accelerator:
        demand[_metric(accelerator)] += int(machine["accelerator_count"])
    if family in _TPU_METRICS and machine.get("tpu_topology"):
        demand[_TPU_METRICS[family]] += math.prod(map(int, str(machine["tpu_topology"]).split("x")))
    return demand


def _metric(accelerator: str) -> str:
    return _ACCELERATOR_METRICS.get(accelerator) or f"{accelerator.lower().replace('tesla_', '')}_gpus"


def quotas(demand: Mapping[str, int], settings: VertexSettings) -> Iterator[Check]:
    """Yields a check for each metric.

    Args:
      demand: Metric -> amount.
      settings: Settings of Vertex AI.
    """
    parent = f"projects/{settings.project}/services/{_SERVICE}/consumerQuotaMetrics"
    for metric, amount in sorted(demand.items()):
        url = f"https://serviceusage.googleapis.com/v1beta1/{parent}/{quoted(metric)}"
        yield Check(
            f"quota {metric.rpartition('/')[2]}",
            (Request(url),),
            functools.partial(_judge, metric, amount, settings),
        )


def _judge(metric: str, amount: int, settings: VertexSettings, answers: Sequence[Answer]) -> Finding:
    (answer,) = answers
    check = f"quota {metric.rpartition('/')[2]}"
    if not answer.is_ok:
        return unknown(check, answer, "serviceusage.quotas.get")
    limit = _find_limit(answer.document, str(settings.region))
    if limit is None:
        return Finding(check, "unknown", f"the limit in {settings.region} is not told; training needs {amount}")
    if limit == _UNLIMITED:
        return passed(check, f"training needs {amount}, and there is no limit in {settings.region}")
    if amount > limit:
        page = f"https://console.cloud.google.com/iam-admin/quotas?project={settings.project}"
        remedy = f"ask for more at {page}, or write fewer workers, another machine or another region"
        return failed(check, f"training needs {amount}, and the limit in {settings.region} is {limit}", remedy)
    return passed(check, f"training needs {amount}, and the limit in {settings.region} is {limit}")


def _find_limit(document: Mapping[str, Any], region: str) -> int | None:
    """Returns the limit of a region: of the most specific bucket that applies to it."""
    limit = None
    for each in document.get("consumerQuotaLimits", ()):
        for bucket in each.get("quotaBuckets", ()):
            # From the least to the most specific.
            if bucket.get("dimensions", {}).items() <= {"region": region}.items():
                limit = int(bucket.get("effectiveLimit", 0))
    return limit
