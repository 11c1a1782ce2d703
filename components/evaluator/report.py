"""Writes the report of a run into output artifacts of the Evaluator."""

import json
from collections.abc import Mapping
from typing import Any

from absl import logging
from tfx import types
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts, standard_component_specs
from tfx.utils import io_utils

from tfx_distribute.components.example_gen.names import describe_examples
from tfx_distribute.components.report import artifact_types, artifacts, page
from tfx_distribute.components.report.data import UNUSABLE_BASELINE, VERDICTS, Report, training_properties

# What a report is made of besides the evaluation, and the artifacts that it becomes.
INPUTS = {
    "statistics": standard_artifacts.ExampleStatistics,
    "anomalies": standard_artifacts.ExampleAnomalies,
    "model_run": standard_artifacts.ModelRun,
    "tuner_results": standard_artifacts.TunerResults,
}
OUTPUTS = {
    "html": artifact_types.HTML,
    "metrics": artifact_types.Metrics,
    "classification_metrics": artifact_types.ClassificationMetrics,
}


def write(title: str, inputs: Mapping[str, list[types.Artifact]], outputs: Mapping[str, list[types.Artifact]]) -> None:
    """Writes the page, and the metrics as properties of artifacts.

    The evaluation and the blessing among the outputs are complete.
    """

    def uri(kind: Mapping[str, list[types.Artifact]], name: str) -> str:
        return str(kind[name][0].uri) if kind.get(name) else ""

    (blessing,) = outputs[standard_component_specs.BLESSING_KEY]
    verdict = read_properties(blessing)
    parts = artifacts.read(
        statistics=uri(inputs, "statistics"),
        anomalies=uri(inputs, "anomalies"),
        model_run=uri(inputs, "model_run"),
        evaluation=uri(outputs, standard_component_specs.EVALUATION_KEY),
        trials=uri(inputs, "tuner_results"),
        blessed=bool(verdict["blessed"]) if "blessed" in verdict else None,
        unusable_baseline=verdict.get(UNUSABLE_BASELINE, ""),
        search=read_properties(inputs["tuner_results"][0]) if inputs.get("tuner_results") else {},
    )
    model = inputs.get(standard_component_specs.MODEL_KEY)
    training = training_properties(read_properties(model[0])) if model else {}
    examples = inputs.get(standard_component_specs.EXAMPLES_KEY)
    data = describe_examples(read_properties(examples[0])) if examples else {}
    report = Report(pipeline=title, data=data, training=training, **parts)
    for text in report.missing:
        logging.warning("The report lacks: %s", text)
    (html,) = outputs["html"]
    # TFX makes a folder for each output; pages expect a file at the address.
    if fileio.isdir(html.uri):
        fileio.rmtree(html.uri)
    io_utils.write_string_file(html.uri, page.render(report))
    if report.evaluation is None:
        return
    blessing.set_string_custom_property(VERDICTS, json.dumps(report.evaluation.describe_thresholds()))
    (metrics,), (classification,) = outputs["metrics"], outputs["classification_metrics"]
    for name, value in artifact_types.to_metrics(report.evaluation).items():
        metrics.set_float_custom_property(name, value)
    for name, value in artifact_types.to_classification_metrics(report.evaluation).items():
        classification.set_json_value_custom_property(name, value)


def read_properties(artifact: types.Artifact) -> dict[str, Any]:
    """Returns the custom properties of an artifact that are numbers or strings."""
    properties = {}
    for name, value in artifact.mlmd_artifact.custom_properties.items():
        kind = value.WhichOneof("value")
        if kind in ("int_value", "double_value", "string_value", "bool_value"):
            properties[name] = getattr(value, kind)
        elif kind == "struct_value":  # as Kubeflow's metadata of an input has numbers
            plain = artifact.get_json_value_custom_property(name)
            if isinstance(plain, int | float | str):
                properties[name] = plain
    return properties
