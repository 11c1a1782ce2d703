"""Artifacts that the pages of Kubeflow Pipelines and Vertex AI show.

Their type names and metadata are those of `kfp.dsl`; sources:
https://github.com/kubeflow/pipelines, sdk/python/kfp/dsl/types/artifact_types.py and
frontend/src/components/viewers/MetricsVisualizations.tsx.
"""

import math
from typing import Any

from tfx.types import artifact
from tfx.utils import name_utils

from tfx_distribute.components.report.data import MAX_CLASSES, Evaluation

PREFIX = "system."


class HTML(artifact.Artifact):
    """An HTML page; the artifact's address is that of the file."""

    TYPE_NAME = f"{PREFIX}HTML"


class Metrics(artifact.Artifact):
    """Numbers, each a custom property."""

    TYPE_NAME = f"{PREFIX}Metrics"


class ClassificationMetrics(artifact.Artifact):
    """A confusion matrix and a ROC curve, as custom properties."""

    TYPE_NAME = f"{PREFIX}ClassificationMetrics"


def register() -> None:
    """Makes these types known to TFX's steps on Kubeflow Pipelines and Vertex AI.

    A step finds the class of an artifact by the title of its type.
    """
    # It imports kfp, which an environment for local runs need not have.
    from tfx.orchestration.kubeflow.v2 import compiler_utils

    for kind in (HTML, Metrics, ClassificationMetrics):
        compiler_utils.TITLE_TO_CLASS_PATH[kind.TYPE_NAME] = name_utils.get_full_name(kind)


def to_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Returns the finite metrics over all examples; others cannot be stored."""
    return {name: value for name, value in evaluation.values.items() if math.isfinite(value)}


def to_classification_metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Returns the metadata of `ClassificationMetrics` as kfp writes it."""
    metadata: dict[str, Any] = {}
    classes, rows = evaluation.confusion
    if classes and len(classes) <= MAX_CLASSES:
        metadata["confusionMatrix"] = {
            "annotationSpecs": [{"displayName": name} for name in classes],
            "rows": [{"row": list(row)} for row in rows],
        }
    if evaluation.roc:
        metadata["confidenceMetrics"] = [
            {"confidenceThreshold": threshold, "falsePositiveRate": false_rate, "recall": true_rate}
            for threshold, false_rate, true_rate in evaluation.roc
        ]
    return metadata
