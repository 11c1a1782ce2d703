"""Makes histories and outcomes of trainings for tests of comparisons."""

from typing import Any

from tfx_distribute.pipelines.compare.comparison import MEASURED, Comparison, Outcome, compare
from tfx_distribute.pipelines.compare.measurement import LossPoint, Measurement
from tfx_distribute.trainer_module.lifecycle.history import HistoryRecord


def record(time: float, step: int, phase: str = "epoch", task: str = "chief-0", **fields: Any) -> HistoryRecord:
    """Makes a record of a history."""
    fields.setdefault("global_batch_size", 64)
    fields.setdefault("num_replicas", 2)
    return HistoryRecord(time=time, task=task, attempt="a", started=0.0, phase=phase, step=step, **fields)


def measurement(speed: float, batch: int = 32, steps: int = 101, **fields: Any) -> Measurement:
    """Makes the measurement of a training with a speed, in examples per second."""
    values: dict[str, Any] = {
        "replicas": 1,
        "global_batch_size": batch,
        "train_steps": steps,
        "warmup_steps": 1,
        "startup_seconds": 2.0,
        "warmup_seconds": 1.0,
        "seconds": (steps - 1) * batch / speed,
        "spread": 0.05,
        "losses": (LossPoint(50, 25.0, 0.5), LossPoint(101, 50.0, 0.25)),
    }
    return Measurement(**{**values, **fields})


def outcome(speed: float, devices: int = 1, *, processes: int = 0, measured: Any = None, **values: Any) -> Outcome:
    """Makes the outcome of a measured combination."""
    values.setdefault("strategy", "multi_worker_mirrored")
    return Outcome(
        values,
        MEASURED,
        strategy=values["strategy"],
        per_replica_batch_size=values.get("per_replica_batch_size", 32),
        processes=processes or devices,
        devices=devices,
        measurement=measurement(speed, **(measured or {})),
    )


def comparison(*outcomes: Outcome, **arguments: Any) -> Comparison:
    """Compares outcomes."""
    values: dict[str, Any] = {"scaling": "weak", "train_steps": 101, "cores": 8, "num_gpus": 8}
    return compare("mine", outcomes=outcomes, **{**values, **arguments})
