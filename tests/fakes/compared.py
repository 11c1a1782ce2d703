"""Makes histories and outcomes of trainings for tests of comparisons."""

from typing import Any

from tfx_distribute.pipelines.compare import Combination, Measurement
from tfx_distribute.trainer_module.reporting.progress import Progress


def record(time: float, step: int, phase: str = "epoch", task: str = "chief-0", **fields: Any) -> Progress:
    """Makes a record of a history."""
    return Progress(time=time, task=task, phase=phase, step=step, global_batch_size=64, **fields)


def outcome(speed: float, devices: int = 1, *, measured: Any = None, **values: Any) -> Combination:
    """Makes a combination with a speed, in examples per second."""
    fields = {"batch": 32, "seconds": 10.0, "loss": 0.25, **(measured or {})}
    measurement = Measurement(examples_per_second=speed, **fields)
    return Combination(values, None, "measured", "", max(devices, 1), devices, measurement)


def unmeasured(status: Any, reason: str, **values: Any) -> Combination:
    """Makes a combination that was not measured."""
    return Combination(values, None, status, reason)
