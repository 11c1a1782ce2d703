"""A component written as TFX's users write small ones, with an underscore in its name."""

from tfx.dsl.component.experimental.annotations import OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.types import standard_artifacts


@component
def make_model(model: OutputArtifact[standard_artifacts.Model], size: Parameter[int]):
    """Makes nothing; it is only compiled."""
