"""Defines the Evaluator: TFX's, with thresholds that only finite metrics meet."""

from tfx.components.evaluator import component
from tfx.dsl.components.base import executor_spec

from tfx_distribute.components.evaluator import executor


class Evaluator(component.Evaluator):
    """Evaluates a model and blesses it if it meets all thresholds.

    Takes the arguments of `tfx.components.Evaluator` and has the same outputs. Only the
    verdict differs, on metrics that are NaN or infinite and on changes relative to a
    negative value; see `thresholds.judge`.

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
       property `unusable_baseline` names the metrics of the baseline that are not
       finite, if there are any.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)
