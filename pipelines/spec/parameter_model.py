"""Turns declarations of pipeline parameters into a pydantic model."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import Field, create_model, model_validator

from tfx_distribute.components.spec_model import SpecModel
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.parameters import (
    Declaration,
    Distribution,
    FaultTolerance,
    InputOptions,
    TrainingOptions,
    declarations,
)

_Group = TypeVar("_Group", Distribution, TrainingOptions, InputOptions, FaultTolerance)


class ParameterModel(SpecModel):
    """Pipeline parameters of the Trainer and the pipeline's defaults for them.

    `-p name=value` replaces a default for one run. Each parameter is described in
    docs/parameters.md.
    """

    @model_validator(mode="after")
    def _check_combination(self) -> "ParameterModel":
        strategy_table.check(self.distribution, self.training_options, self.input_options, self.fault_tolerance)
        return self

    @property
    def distribution(self) -> Distribution:
        """Returns the strategy, processes and devices, with `auto` resolved."""
        return strategy_table.resolve(self._select(Distribution))

    @property
    def training_options(self) -> TrainingOptions:
        """Returns the batches, length, precision and learning rate."""
        return self._select(TrainingOptions)

    @property
    def input_options(self) -> InputOptions:
        """Returns how training processes read examples."""
        return self._select(InputOptions)

    @property
    def fault_tolerance(self) -> FaultTolerance:
        """Returns how training survives the loss of a process."""
        return self._select(FaultTolerance)

    def _select(self, group: type[_Group]) -> _Group:
        return group(**{field.name: getattr(self, field.name) for field in fields(group)})


def make_model(name: str, groups: Sequence[type], module: str) -> type[ParameterModel]:
    """Returns a model with a field for each parameter that `groups` declare, in order.

    `module` is the name of the module that the model is assigned in.
    """
    declared: dict[str, Any] = {each.name: (each.type, _field(each)) for each in declarations(*groups)}
    return create_model(name, __base__=ParameterModel, __module__=module, __doc__=ParameterModel.__doc__, **declared)


def _field(declared: Declaration) -> Any:
    # The values of `choices` are only shown to editors: `strategy_table.check` refuses
    # others in one message, whatever their type.
    return Field(
        declared.default,
        description=declared.help,
        ge=declared.minimum,
        json_schema_extra={"enum": list(declared.choices)} if declared.choices else None,
    )
