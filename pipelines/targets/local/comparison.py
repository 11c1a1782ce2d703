"""Compares runs on this machine: parameters and metrics that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfx_distribute.pipelines.targets.local.runs import Run

if TYPE_CHECKING:
    from tfx_distribute.components.report.data import Evaluation

# Of metrics of the training's last epoch, and of the exported one if it is another, in
# the model's properties.
METRIC_PREFIXES = ("training_", "exported_")


@dataclass(frozen=True)
class Difference:
    """A value that is not the same in all runs; None in a run that does not have it."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side: ids, and the parameters and metrics that differ.

    Hyperparameters are parameters, too, and metrics are those of the evaluation and of
    the training. `missing` says what could not be read, and why.
    """

    runs: tuple[str, ...]
    parameters: tuple[Difference, ...] = ()
    metrics: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = field(default=())


def compare(runs: Sequence[Run], metrics: Sequence[Mapping[str, float]], missing: Sequence[str] = ()) -> Comparison:
    """Compares runs, with the metrics of each as `read_metrics` returns them."""
    parameters = [
        {
            **run.parameters,
            **{f"hparams.{name}": value for name, value in run.hparams.items()},
            "module": run.module or None,
            "spans": run.spans or None,
        }
        for run in runs
    ]
    return Comparison(tuple(run.id for run in runs), find_differences(parameters), find_differences(metrics), tuple(missing))


def find_differences(values: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Returns the names whose values are not the same in all mappings.

    Example:
      >>> find_differences([{"epochs": 1, "seed": 0}, {"epochs": 2, "seed": 0}])
      (Difference(name='epochs', values=(1, 2)),)
    """
    names = dict.fromkeys(name for mapping in values for name in mapping)
    rows = ((name, tuple(mapping.get(name) for mapping in values)) for name in names)
    return tuple(Difference(name, row) for name, row in rows if any(value != row[0] for value in row))


def read_metrics(run: Run) -> tuple[dict[str, float], tuple[str, ...]]:
    """Returns the metrics of a run, as `list_metrics`, and what could not be read."""
    evaluation, missing = read_evaluation(run)
    return list_metrics(run, evaluation), missing


def read_evaluation(run: Run) -> tuple["Evaluation | None", tuple[str, ...]]:
    """Returns the evaluation of a run, if there is one, and what could not be read.

    Reads it with TFMA, which loads TensorFlow.
    """
    evaluation = run.find("ModelEvaluation")
    if evaluation is None:
        return None, ()
    from tfx_distribute.components.report import artifacts

    parts = artifacts.read(artifacts.Sources(evaluation=evaluation.info.uri, blessed=run.blessed))
    return parts.get("evaluation"), tuple(f"{run.id}: {text}" for text in parts["missing"])


def list_metrics(run: Run, evaluation: "Evaluation | None") -> dict[str, float]:
    """Returns a run's metrics over all examples, those of the evaluation first."""
    metrics: dict[str, float] = {}
    for slice_ in evaluation.slices if evaluation else ():
        if not slice_.name:
            metrics.update({name: cell.value for name, cell in slice_.cells.items()})
    model = run.model
    properties = sorted(model.properties.items()) if model else []
    metrics.update({name: value for name, value in properties if name.startswith(METRIC_PREFIXES)})
    return metrics
