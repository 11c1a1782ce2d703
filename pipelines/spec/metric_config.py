"""Checks of metrics with thresholds, before anything is trained. Knows TFMA's classes by name, and imports none."""

import re
from typing import Any

_NOT_ONE_NUMBER = (  # TFMA's classes whose results are tables, plots or one value a feature
    "BooleanFlipRates",
    "CalibrationPlot",
    "ConfusionMatrixAtThresholds",
    "ConfusionMatrixPlot",
    "FalseNegativeFeatureSampler",
    "FalsePositiveFeatureSampler",
    "MeanAbsoluteAttributions",
    "MeanAttributions",
    "MultiClassConfusionMatrixAtThresholds",
    "MultiClassConfusionMatrixPlot",
    "MultiLabelConfusionMatrixPlot",
    "ObjectDetectionConfusionMatrixPlot",
    "QueryStatistics",
    "ScoreDistributionPlot",
    "SemanticSegmentationConfusionMatrix",
    "TotalAbsoluteAttributions",
    "TotalAttributions",
)
# Arguments that make one result for each of their values. Areas under curves, and values at a point of a curve, are one
# number whatever `thresholds` the curve is made of.
_ONE_RESULT_EACH = ("thresholds", "recall", "precision", "specificity", "sensitivity", "false_positive_rate")
_OF_A_CURVE = re.compile(r"AUC|At(Recall|Precision|Specificity|Sensitivity|FalsePositiveRate)")
ONE_CLASS_OR_TOP_K = ("top_k", "class_id")


def check_one_number(name: str, config: dict[str, Any]) -> None:
    """Checks that a metric is one number, which TFMA can compare with a threshold.

    Args:
      name: The metric's class.
      config: Arguments of the class.

    Raises:
      ValueError: It is not, or TFMA would look for the number in the wrong place.
    """
    leave_out = "leave out lower_bound, upper_bound and change"
    if name in _NOT_ONE_NUMBER:
        raise ValueError(f"metrics.{name}: it has a result which is not one number; {leave_out}")
    for key in _ONE_RESULT_EACH:
        values = config.get(key)
        if isinstance(values, list) and len(values) > 1 and not (key == "thresholds" and _OF_A_CURVE.search(name)):
            raise ValueError(
                f"metrics.{name}: a threshold needs one number, but `{key}: {values}` makes one for each;"
                f" write one of them, or {leave_out}"
            )
    given = [key for key in ONE_CLASS_OR_TOP_K if config.get(key) is not None]
    for key in given:
        value = config[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"metrics.{name}: config.{key}: {value!r} is not a whole number")
    if len(given) > 1:
        raise ValueError(f"metrics.{name}: write top_k or class_id, not both, in config")
    if given and name.startswith("ObjectDetection"):
        raise ValueError(f"metrics.{name}: TFMA looks for no threshold on one class; leave out class_id, or {leave_out}")
