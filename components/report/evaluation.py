"""Reads metrics by slice, with thresholds and baseline, from an Evaluator's output."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2, validation_result_pb2

from tfx_distribute.components.report import thresholds as thresholds_lib
from tfx_distribute.components.report.data import Cell, Evaluation, Slice

MAX_ROC_POINTS = 100


def read(folder: str, blessed: bool | None = None, unusable_baseline: str = "") -> Evaluation:
    """Reads an evaluation from the folder of a ModelEvaluation artifact."""
    config = tfma.load_eval_result(folder).config
    overall = [plots for plots in tfma.load_plots(folder) if not plots.slice_key.single_slice_keys]
    plots = [entry.value for plots in overall for entry in plots.plot_keys_and_values]
    return dataclasses.replace(
        to_evaluation(config, tfma.load_metrics(folder), tfma.load_validation_result(folder)),
        blessed=blessed,
        unusable_baseline=unusable_baseline,
        confusion=to_confusion(plots),
        roc=to_roc(plots),
    )


def to_evaluation(
    config: config_pb2.EvalConfig,
    metrics: Iterable[metrics_for_slice_pb2.MetricsForSlice],
    validation: validation_result_pb2.ValidationResult,
) -> Evaluation:
    """Converts TFMA's metrics and thresholds; of slices, those that fail come first."""
    failures = thresholds_lib.read_failures(validation) if validation else {}
    has_baseline = any(spec.is_baseline for spec in config.model_specs)
    values_on = thresholds_lib.read_slices(metrics, config, has_baseline)
    limits = thresholds_lib.read_thresholds(config)
    names = _name_metrics(config, {*limits, *(key for values in values_on.values() for key in values.candidate)})
    slices = []
    for slice_key, values in values_on.items():
        cells = {
            name: Cell(
                values.candidate.get(key, math.nan),
                values.baseline.get(key),
                (slice_key, key) in failures,
                failures.get((slice_key, key)),
            )
            for key, name in names.items()
            if key in values.candidate or (slice_key, key) in failures
        }
        if cells:
            slices.append(Slice(thresholds_lib.slice_name(slice_key), cells))
    slices.sort(
        key=lambda slice_: (
            bool(slice_.name),
            not any(cell.failed for cell in slice_.cells.values()),
            _natural_order(slice_.name),
        )
    )
    texts = {name: dict.fromkeys(_describe_limit(limit) for _, limit in limits.get(key, ())) for key, name in names.items()}
    return Evaluation(tuple(slices), {name: ", ".join(filter(None, parts)) for name, parts in texts.items() if any(parts)})


def to_confusion(plots: Sequence[Any]) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Returns class names and counts, a row for each true class.

    Two classes are counted at a threshold of 0.5.
    """
    for plot in plots:
        matrices = plot.multi_class_confusion_matrix_at_thresholds.matrices
        if matrices:
            entries = {
                (entry.actual_class_id, entry.predicted_class_id): entry.num_weighted_examples
                for entry in matrices[0].entries
            }
            classes = sorted({number for pair in entries for number in pair})
            rows = tuple(tuple(entries.get((actual, predicted), 0.0) for predicted in classes) for actual in classes)
            return tuple("none" if number < 0 else str(number) for number in classes), rows
    for plot in plots:
        matrices = plot.confusion_matrix_at_thresholds.matrices
        if matrices:
            half = min(matrices, key=lambda matrix: abs(matrix.threshold - 0.5))
            return ("negative", "positive"), (
                (half.true_negatives, half.false_positives),
                (half.false_negatives, half.true_positives),
            )
    return (), ()


def to_roc(plots: Sequence[Any]) -> tuple[tuple[float, float, float], ...]:
    """Returns threshold, false and true positive rate, from a `ConfusionMatrixPlot`."""
    for plot in plots:
        matrices = [matrix for matrix in plot.confusion_matrix_at_thresholds.matrices if 0 <= matrix.threshold <= 1]
        if matrices:
            stride = math.ceil(len(matrices) / MAX_ROC_POINTS)
            points = [
                (
                    matrix.threshold,
                    _ratio(matrix.false_positives, matrix.true_negatives),
                    _ratio(matrix.true_positives, matrix.false_negatives),
                )
                for matrix in (*matrices[:-1:stride], matrices[-1])
            ]
            return tuple(sorted(points))
    return ()


def _natural_order(text: str) -> list[tuple[int, float, str]]:
    """Returns a sort key by which `hour=9` comes before `hour=10`."""
    parts = re.split(r"(\d+)", text)
    return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts]


def _ratio(part: float, rest: float) -> float:
    return part / (part + rest) if part + rest else 0.0


def _name_metrics(config: config_pb2.EvalConfig, keys: Collection[Any]) -> dict[Any, str]:
    """Returns the names of metrics as in the config, and in its order.

    Where several have one, an output, a class or a top k is added.
    """
    configs = [metric for spec in config.metrics_specs for metric in spec.metrics]
    order = [json.loads(metric.config or "{}").get("name", metric.class_name) for metric in configs]
    counts = Counter(key.name for key in keys)
    names = {key: key.name if counts[key.name] == 1 else _describe(key) for key in keys}
    ranked = sorted(names, key=lambda key: (order.index(key.name) if key.name in order else len(order), names[key]))
    return {key: names[key] for key in ranked if key.name != thresholds_lib.TOTAL_WEIGHT}  # which the Evaluator adds


def _describe(key: Any) -> str:
    name = f"{key.output_name}.{key.name}" if key.output_name else str(key.name)
    return f"{name} ({key.sub_key})" if key.sub_key else name


def _describe_limit(limit: Any) -> str:
    if isinstance(limit, config_pb2.GenericValueThreshold):
        bounds: Mapping[str, str] = {"lower_bound": ">=", "upper_bound": "<="}
        return ", ".join(
            f"{sign} {getattr(limit, bound).value:g}" for bound, sign in bounds.items() if limit.HasField(bound)
        )
    changes = [f"{limit.absolute.value:+g}"] if limit.HasField("absolute") else []
    changes += [f"{100 * limit.relative.value:+g} %"] if limit.HasField("relative") else []
    least = "most" if limit.direction == tfma.MetricDirection.LOWER_IS_BETTER else "least"
    return f"change of at {least} {' and '.join(changes)}"
