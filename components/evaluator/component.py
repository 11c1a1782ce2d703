"""Defines the Evaluator: TFX's, with thresholds that only finite metrics meet."""

from collections.abc import Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from tfx import types
from tfx.components.evaluator import component
from tfx.components.util import udf_utils
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration import data_types
from tfx.types import component_spec, standard_artifacts, standard_component_specs
from tfx.utils import json_utils

from tfx_distribute.components.evaluator import executor


class EvaluatorSpec(standard_component_specs.EvaluatorSpec):
    """TFX's EvaluatorSpec with the report: what it is made of, and its artifacts."""

    INPUTS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.EvaluatorSpec.INPUTS,
        **{
            name: component_spec.ChannelParameter(type=artifact_type, optional=True)
            for name, artifact_type in executor.REPORT_INPUTS.items()
        },
    }
    PARAMETERS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.EvaluatorSpec.PARAMETERS,
        executor.REPORT: component_spec.ExecutionParameter(type=str, optional=True),
    }
    OUTPUTS = {  # noqa: RUF012 (as TFX declares them)
        **standard_component_specs.EvaluatorSpec.OUTPUTS,
        **{
            name: component_spec.ChannelParameter(type=artifact_type, optional=True)
            for name, artifact_type in executor.REPORT_OUTPUTS.items()
        },
    }


class Evaluator(component.Evaluator):
    """Evaluates a model and blesses it if it meets all thresholds.

    Takes the arguments of `tfx.components.Evaluator` and has the same outputs. Only the
    verdict differs: on metrics that are NaN or infinite, on examples without weight, on
    changes relative to a negative value, and on a first model whose thresholds are all
    on change; see `thresholds.judge`. With `report`, it writes the report of the
    run too, for the pages of Kubeflow Pipelines and Vertex AI.

    ```python
    evaluator = Evaluator(
        examples=example_gen.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=latest_blessed_model.outputs["model"],
        eval_config=eval_config,
    )
    ```

    Component `outputs` contains:
     - `evaluation`: Channel of type `standard_artifacts.ModelEvaluation`: metrics and
       validation, in TFMA's format.
     - `blessing`: Channel of type `standard_artifacts.ModelBlessing`. Its custom
       property `unusable_baseline` says why the model was not compared with the
       baseline, if it was not: a metric of the baseline is not finite, or it cannot
       read the examples.
     - with `report`, `html`: Channel of type `system.HTML`, the report; `metrics`:
       `system.Metrics`, the metrics over all examples; `classification_metrics`:
       `system.ClassificationMetrics`, confusion matrix and ROC curve, if the evaluation
       has a `ConfusionMatrixPlot` or `MultiClassConfusionMatrixPlot`.
    """

    SPEC_CLASS = EvaluatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        model: types.BaseChannel | None = None,
        baseline_model: types.BaseChannel | None = None,
        feature_slicing_spec: Any = None,
        fairness_indicator_thresholds: list[float] | data_types.RuntimeParameter | None = None,
        example_splits: Sequence[str] | None = None,
        eval_config: tfma.EvalConfig | None = None,
        schema: types.BaseChannel | None = None,
        module_file: str | None = None,
        module_path: str | None = None,
        *,
        report: str | None = None,
        **report_inputs: types.BaseChannel | None,
    ):
        """Constructs an Evaluator component.

        Args:
          examples: As in TFX, like all arguments up to `module_path`.
          model: Model to evaluate.
          baseline_model: Model to compare with.
          feature_slicing_spec: Deprecated by TFX; use `eval_config`.
          fairness_indicator_thresholds: Thresholds of fairness indicators.
          example_splits: Splits to evaluate on; default `eval`.
          eval_config: Metrics, thresholds and slices.
          schema: Channel of `standard_artifacts.Schema`.
          module_file: Python file with functions for the evaluation.
          module_path: Dotted path of such a module.
          report: Title of the report, such as the name of the pipeline; None for no
            report.
          **report_inputs: Channels that the report shows besides the evaluation:
            `statistics`, `anomalies`, `model_run` and `tuner_results`.

        Raises:
          TypeError: There is no such argument.
          ValueError: The arguments contradict each other, as in TFX.
        """
        unknown = sorted(report_inputs.keys() - executor.REPORT_INPUTS.keys())
        if unknown:
            raise TypeError(f"Evaluator: there is no argument {unknown[0]!r}")
        if module_file and module_path:
            raise ValueError("Evaluator: module_file and module_path must not both be supplied")
        if (eval_config is None) == (feature_slicing_spec is None):
            raise ValueError("Evaluator: exactly one of eval_config and feature_slicing_spec must be supplied")
        is_parameter = isinstance(fairness_indicator_thresholds, data_types.RuntimeParameter)
        outputs = {name: types.Channel(type=kind) for name, kind in executor.REPORT_OUTPUTS.items()} if report else {}
        spec = EvaluatorSpec(
            examples=examples,
            model=model,
            baseline_model=baseline_model,
            feature_slicing_spec=feature_slicing_spec,
            fairness_indicator_thresholds=fairness_indicator_thresholds
            if is_parameter
            else json_utils.dumps(fairness_indicator_thresholds),
            example_splits=json_utils.dumps(example_splits),
            eval_config=eval_config,
            schema=schema,
            module_file=module_file,
            module_path=module_path,
            report=report,
            evaluation=types.Channel(type=standard_artifacts.ModelEvaluation),
            blessing=types.Channel(type=standard_artifacts.ModelBlessing),
            **(report_inputs if report else {}),
            **outputs,
        )
        # Not TFX's own, which makes its own specification.
        base_component.BaseComponent.__init__(self, spec=spec)
        if udf_utils.should_package_user_modules():
            udf_utils.add_user_module_dependency(
                self, standard_component_specs.MODULE_FILE_KEY, standard_component_specs.MODULE_PATH_KEY
            )
