"""Checks metrics with thresholds before training. Knows TFMA's classes by name only."""

import re
from typing import Any

# TFMA's classes whose results are tables, plots or one value per feature.
_NOT_ONE_NUMBER = re.compile(r"Plot$|Matrix|Attributions$|Sampler$|FlipRates|QueryStatistics")
# Arguments that give one result for each of their values. An area under a curve, or a
# value at a point of a curve, is one number for any `thresholds` of the curve.
_ONE_RESULT_PER_VALUE = ("thresholds", "recall", "precision", "specificity", "sensitivity", "false_positive_rate")
_CURVE_METRIC = re.compile(r"AUC|At(Recall|Precision|Specificity|Sensitivity|FalsePositiveRate)")
ONE_CLASS_OR_TOP_K = ("top_k", "class_id")


def check_one_number(name: str, config: dict[str, Any]) -> None:
    """Checks that a metric is a single number, which TFMA can compare with a threshold.

    Raises a ValueError also if TFMA would look for the number in the wrong place.
    """
    leave_out = "leave out lower_bound, upper_bound and change"
    if _NOT_ONE_NUMBER.search(name):
        raise ValueError(f"metrics.{name}: its result is not a single number; {leave_out}")
    for key in _ONE_RESULT_PER_VALUE:
        values = config.get(key)
        if isinstance(values, list) and len(values) > 1 and not (key == "thresholds" and _CURVE_METRIC.search(name)):
            raise ValueError(
                f"metrics.{name}: a threshold needs one number, but `{key}: {values}` makes one for each;"
                f" write one of them, or {leave_out}"
            )
    keys = [key for key in ONE_CLASS_OR_TOP_K if config.get(key) is not None]
    if len(keys) > 1:
        raise ValueError(f"metrics.{name}: write top_k or class_id, not both, in config")
    if keys and name.startswith("ObjectDetection"):
        raise ValueError(f"metrics.{name}: TFMA ignores a threshold on one class; leave out class_id, or {leave_out}")
