"""Defines the component ExampleValidator."""

from collections.abc import Sequence

from tfx import types
from tfx.components.example_validator import component
from tfx.dsl.components.base import executor_spec
from tfx.orchestration import data_types
from tfx.types import component_spec, standard_artifacts

from tfx_distribute.components.example_validator import executor
from tfx_distribute.components.example_validator.rules import BASELINE, RULES, STOP_ON_ANOMALIES, ValidationRules


class ExampleValidator(component.ExampleValidator):
    """Takes the place and arguments of TFX's ExampleValidator, and can stop a run.

    A missing column or a wrong type makes the node fail. TFX's only writes it down.
    Nodes that train should wait for it, which
    `transform.add_upstream_node(example_validator)` makes them do.

    Example:
      >>> example_validator = ExampleValidator(
      ...     statistics=statistics_gen.outputs["statistics"],
      ...     schema=schema_gen.outputs["schema"],
      ...     rules=ValidationRules(anomalies={"company": "warn"}, skew={"fare": 0.1}),
      ... )

    The output `anomalies`, of type `standard_artifacts.ExampleAnomalies`, also has the
    statistics, for the `baseline` of a later run.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(
        self,
        statistics: types.BaseChannel,
        schema: types.BaseChannel,
        exclude_splits: Sequence[str] | None = None,
        *,
        rules: ValidationRules | None = None,
        baseline: types.BaseChannel | None = None,
        stop_on_anomalies: int | data_types.RuntimeParameter = 1,
    ):
        """Constructs an ExampleValidator component.

        Args:
          statistics: As in TFX 1.21, like all arguments up to `exclude_splits`; TFX
            1.16 also takes validations in SQL.
          schema: Channel of `standard_artifacts.Schema`.
          exclude_splits: Splits that are not validated; none by default.
          rules: What stops a run; by default missing columns and wrong types.
          baseline: Channel of the `anomalies` of the last run that was not stopped, for
            `rules.drift`.
          stop_on_anomalies: 1, or 0 to stop no run.
        """
        super().__init__(statistics, schema, list(exclude_splits or []))
        self.exec_properties[RULES] = (rules or ValidationRules()).to_json()
        self.exec_properties[STOP_ON_ANOMALIES] = stop_on_anomalies
        if baseline is not None:
            # TFX looks there whether an input has to be there.
            parameter = component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies, optional=True)
            self.spec.INPUTS = {**self.spec.INPUTS, BASELINE: parameter}
            self.inputs[BASELINE] = baseline
