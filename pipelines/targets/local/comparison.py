"""Compares runs on this machine: parameters and metrics that differ."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfx_distribute.pipelines.targets.local.runs import Run

if TYPE_CHECKING:
    from tfx_distribute.components.report.data import Evaluation

# Of metrics of the training's last epoch, and of the exported one if it is another, in
# the model's properties.
METRIC_PREFIXES = ("training_", "exported_")

Differences = dict[str, tuple[Any, ...]]  # by name, a value for each run


def compare(runs: Sequence[Run], metrics: Sequence[Mapping[str, float]]) -> dict[str, Differences]:
    """Returns the parameters and metrics that differ, those of each run in a tuple.

    Hyperparameters are parameters, too, and metrics are those of the evaluation and of
    the training, as `list_metrics` returns them.
    """
    parameters = [
        {
            **run.parameters,
            **{f"hparams.{name}": value for name, value in run.hparams.items()},
            "module": run.module or None,
            "spans": run.spans or None,
        }
        for run in runs
    ]
    return {"parameter": find_differences(parameters), "metric": find_differences(metrics)}


def find_differences(values: Sequence[Mapping[str, Any]]) -> Differences:
    """Returns the names whose values are not the same in all mappings.

    A value is None in a mapping that does not have it.

    Example:
      >>> find_differences([{"epochs": 1, "seed": 0}, {"epochs": 2, "seed": 0}])
      {'epochs': (1, 2)}
    """
    rows = {name: tuple(each.get(name) for each in values) for name in dict.fromkeys(itertools.chain(*values))}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


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
    metrics = evaluation.values if evaluation else {}
    model = run.model
    properties = sorted(model.properties.items()) if model else []
    metrics.update({name: value for name, value in properties if name.startswith(METRIC_PREFIXES)})
    return metrics
