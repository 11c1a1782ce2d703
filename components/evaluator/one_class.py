"""Warns of metrics of one class that are given the probabilities of several.

TFMA turns a label that is a class into one label for each class, and counts each of
them as an example: the recall of a model with two outputs is then its accuracy, and its
AUC is much greater than that of either class.
"""

import json
import logging
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow_model_analysis.metrics import confusion_matrix_metrics, confusion_matrix_plot, metric_specs
from tensorflow_model_analysis.proto import config_pb2

from tfx_distribute.components.evaluator import baseline

_logger = logging.getLogger(__name__)  # `tfx-distribute run` shows its warnings
_OF_ONE_CLASS = (
    confusion_matrix_metrics.ConfusionMatrixMetricBase,
    confusion_matrix_metrics.ConfusionMatrixAtThresholds,
    confusion_matrix_plot.ConfusionMatrixPlot,
)


def warn(config: config_pb2.EvalConfig, model: str) -> None:
    """Logs the warnings. An evaluation that TFMA would take goes on in any case."""
    try:
        for warning in find_warnings(config, model):
            _logger.warning(warning)
    except Exception:
        _logger.info("the metrics have not been looked at", exc_info=True)


def find_warnings(config: config_pb2.EvalConfig, model: str) -> Iterator[str]:
    """Yields a sentence for each metric that counts several classes as one.

    `model` is the folder of the new model; of one that is not a SavedModel, nothing is
    known.
    """
    if not tf.saved_model.contains_saved_model(model):
        return
    signature = next((spec.signature_name for spec in config.model_specs if not spec.is_baseline), "") or "serving_default"
    widths = _read_widths(model, signature)
    for spec in config.metrics_specs:
        if spec.HasField("binarize") or spec.HasField("aggregate"):
            continue
        width = widths.get(spec.output_names[0] if spec.output_names else "", 1)
        for metric in spec.metrics:
            arguments = json.loads(metric.config or "{}")
            has_class = any(arguments.get(key) is not None for key in ("class_id", "top_k"))
            if width > 1 and not has_class and not metric.module and _is_of_one_class(metric):
                name = arguments.get("name", metric.class_name)
                yield (
                    f"evaluate.metrics.{name}: counts each of the model's {width} outputs for an example as an example of "
                    "its own; for one class, write config: {class_id: 1}"
                )


def _is_of_one_class(metric: config_pb2.MetricConfig) -> bool:
    return isinstance(metric_specs.metric_instance(metric), _OF_ONE_CLASS)


def _read_widths(model: str, signature: str) -> Mapping[str, int]:
    """Returns how many numbers an example has in each output; "" is the only output."""
    signatures = baseline.read_signatures(model)
    if signature not in signatures:
        return {}
    outputs = signatures[signature].outputs
    widths = {name: output.tensor_shape.dim[1].size for name, output in outputs.items() if len(output.tensor_shape.dim) == 2}
    if len(outputs) == len(widths) == 1:
        widths[""] = next(iter(widths.values()))
    return widths
