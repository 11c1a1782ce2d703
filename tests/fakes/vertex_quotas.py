"""Computes what a custom job takes from the quotas of Vertex AI.

Source: https://cloud.google.com/vertex-ai/docs/quotas and the metrics that the
service's own error messages name.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from google.cloud.aiplatform_v1 import types

SERVICE = "aiplatform.googleapis.com"
_SHORT_NAMES = {  # in metrics
    "NVIDIA_TESLA_T4": "nvidia_t4_gpus",
    "NVIDIA_TESLA_A100": "nvidia_a100_gpus",
    "NVIDIA_A100_80GB": "nvidia_a100_80gb_gpus",
    "NVIDIA_L4": "nvidia_l4_gpus",
    "NVIDIA_H100_80GB": "nvidia_h100_gpus",
}
_PREEMPTIBLE = (types.Scheduling.Strategy.SPOT, types.Scheduling.Strategy.FLEX_START)
_CPUS = re.compile(r"(?P<family>n1|n2|e2)-(?:standard|highmem|highcpu)-(?P<size>\d+)")


def demand(job: types.CustomJob) -> Counter[str]:
    """Returns metric -> amount; machines that are not listed take none."""
    amounts: Counter[str] = Counter()
    kind = "preemptible_" if job.job_spec.scheduling.strategy in _PREEMPTIBLE else ""
    for pool in job.job_spec.worker_pool_specs:
        machine = pool.machine_spec
        if cpus := _CPUS.fullmatch(machine.machine_type):
            family = "" if cpus["family"] in ("n1", "e2") else f"{cpus['family']}_"
            amounts[f"{SERVICE}/custom_model_training_{kind}{family}cpus"] += int(cpus["size"]) * pool.replica_count
        if machine.accelerator_type and machine.accelerator_type.name in _SHORT_NAMES:
            metric = f"{SERVICE}/custom_model_training_{kind}{_SHORT_NAMES[machine.accelerator_type.name]}"
            amounts[metric] += machine.accelerator_count * pool.replica_count
    return amounts


def exceeded(job: types.CustomJob, running: Iterable[types.CustomJob], limits: Mapping[str, int]) -> list[str]:
    """Returns the metrics whose limits a job would exceed, next to those that run.

    Args:
      job: The job.
      running: Jobs that have not ended.
      limits: Metric -> limit; others have none.
    """
    taken = demand(job)
    for other in running:
        taken += demand(other)
    return sorted(metric for metric in demand(job) if taken[metric] > limits.get(metric, 2**31))
