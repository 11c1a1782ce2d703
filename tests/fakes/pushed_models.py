"""Provides TFX components that make, bless, push and read small models."""

import shutil
from pathlib import Path

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.decorators import component
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts

from tfx_distribute.components import Pusher


@component
def Model(model: OutputArtifact[standard_artifacts.Model], content: Parameter[str]) -> None:  # noqa: N802
    folder = Path(model.uri) / "Format-Serving"
    folder.mkdir()
    (folder / "saved_model.pb").write_text(content)


@component
def Bless(  # noqa: N802
    model: InputArtifact[standard_artifacts.Model], blessing: OutputArtifact[standard_artifacts.ModelBlessing]
) -> None:
    blessing.set_int_custom_property("blessed", 1)
    blessing.set_int_custom_property("current_model_id", model.id)


@component
def Copy(model: InputArtifact[standard_artifacts.Model], file: Parameter[str]) -> None:  # noqa: N802
    shutil.copy(Path(model.uri, "Format-Serving", "saved_model.pb"), file)


def make_pusher(model: Model, serving: Path) -> Pusher:
    """Returns the Pusher of a model."""
    destination = pusher_pb2.PushDestination(filesystem={"base_directory": str(serving)})
    return Pusher(model=model.outputs["model"], push_destination=destination)
