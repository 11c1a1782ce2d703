"""Finds the latest artifact of a pipeline, such as its latest blessed model.

Evaluator compares a new model with that one, and ExampleValidator new data with those
before. TFX has resolvers for this, which open-source Kubeflow Pipelines does not
support. Its metadata store has what is needed.
"""

from collections.abc import Iterable

from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants

from tfx_distribute.components.container import kubeflow_services
from tfx_distribute.components.container.names import BLESSING


def select_latest(
    artifacts: Iterable[metadata_store_pb2.Artifact], pipeline_root: str, type_name: str = BLESSING
) -> str | None:
    """Returns the address of the latest artifact of a type; None if there is none.

    With the type name of blessings, it is that of the latest blessed model. Either has
    to be below the root: the metadata store identifies a pipeline by its name only, and
    another team may use the same name.
    """
    is_blessing = type_name == BLESSING
    found = [
        artifact
        for artifact in artifacts
        if not is_blessing or kubeflow_services.get_number(artifact, constants.ARTIFACT_PROPERTY_BLESSED_KEY) == 1
    ]
    address = _model_uri if is_blessing else lambda artifact: str(artifact.uri)
    below = [artifact for artifact in found if address(artifact).startswith(f"{pipeline_root.rstrip('/')}/")]
    if not below:
        return None
    return address(max(below, key=lambda artifact: (artifact.create_time_since_epoch, artifact.id)))


def _model_uri(blessing: metadata_store_pb2.Artifact) -> str:
    """Returns the address of the model that a blessing is for."""
    return str(blessing.custom_properties[constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY].string_value)
