"""Defines the Evaluator: TFX's, with thresholds that only finite metrics meet."""

from typing import Any

from tfx import types
from tfx.components.evaluator import component
from tfx.dsl.components.base import executor_spec
from tfx.types import component_spec, standard_component_specs

from tfx_distribute.components.evaluator import executor
from tfx_distribute.components.evaluator import report as report_lib


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

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(self, *arguments: Any, report: str | None = None, **options: Any):
        """Constructs an Evaluator component.

        Args:
          *arguments: Those of `tfx.components.Evaluator`: `examples`, `model`, and so
            on.
          report: Title of the report, such as the name of the pipeline; None for no
            report.
          **options: Keyword arguments of `tfx.components.Evaluator`, and channels that
            the report shows besides the evaluation: `statistics`, `anomalies`,
            `model_run` and `tuner_results`.

        Raises:
          ValueError: There is no `eval_config`, or arguments contradict each other.
        """
        report_inputs = {name: options.pop(name, None) for name in report_lib.INPUTS}
        super().__init__(*arguments, **options)
        if not self.exec_properties.get(standard_component_specs.EVAL_CONFIG_KEY):
            raise ValueError("Evaluator: eval_config must be supplied")
        if not report:
            return
        self.exec_properties[executor.REPORT] = report
        for name, kind in report_lib.INPUTS.items():
            if report_inputs[name] is not None:
                # TFX looks there whether an input has to be there.
                parameter = component_spec.ChannelParameter(type=kind, optional=True)
                self.spec.INPUTS = {**self.spec.INPUTS, name: parameter}
                self.inputs[name] = report_inputs[name]
        for name, kind in report_lib.OUTPUTS.items():
            self.outputs[name] = types.Channel(type=kind).as_output_channel(self, name)
