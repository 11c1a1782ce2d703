"""The latest blessed model of a pipeline, which Evaluator compares a new one with.

TFX leaves this to a resolver, which open-source Kubeflow Pipelines does not have. Its metadata store knows the answer: each
ModelBlessing is there with the pipeline that it came from, and tells the model that it is about.
"""

from collections.abc import Iterable

from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants

from tfx_distribute.trainer_module.errors import ConfigurationError

PIPELINE_CONTEXT = "system.Pipeline"  # what Kubeflow calls the context of all runs of a pipeline
BLESSING = "tfx.ModelBlessing"  # and the type of its artifacts
TIMEOUT_SECONDS = 30.0


def find(address: str, pipeline: str, pipeline_root: str) -> str | None:
    """The address of the model.

    Args:
      address: `host:port` of the metadata store.
      pipeline: Name of the pipeline.
      pipeline_root: Address that its artifacts are written under: the store knows a pipeline by its name alone, which
        another team may use as well.

    Returns:
      None where no model was blessed yet.

    Raises:
      ConfigurationError: The store does not answer.
    """
    host, _, port = address.rpartition(":")
    config = metadata_store_pb2.MetadataStoreClientConfig(host=host, port=int(port), client_timeout_sec=TIMEOUT_SECONDS)
    try:
        store = metadata_store.MetadataStore(config)
        context = store.get_context_by_type_and_name(PIPELINE_CONTEXT, pipeline)
        of_pipeline = store.get_artifacts_by_context(context.id) if context else []
        kinds = {kind.id for kind in store.get_artifact_types() if kind.name == BLESSING}
    except errors.NotFoundError:
        return None
    except (errors.UnavailableError, errors.DeadlineExceededError) as error:
        raise ConfigurationError(
            f"targets.kubeflow.metadata_service: the metadata store does not answer at {address} ({error}); write the "
            "address of Kubeflow Pipelines' metadata-grpc-service, as this step's pod reaches it"
        ) from error
    return latest_model((artifact for artifact in of_pipeline if artifact.type_id in kinds), pipeline_root)


def latest_model(blessings: Iterable[metadata_store_pb2.Artifact], pipeline_root: str) -> str | None:
    """The address of the model below a root that the latest blessing is about."""
    given = [
        blessing
        for blessing in blessings
        if _number(blessing, constants.ARTIFACT_PROPERTY_BLESSED_KEY) == 1
        and _model(blessing).startswith(f"{pipeline_root.rstrip('/')}/")
    ]
    if not given:
        return None
    return _model(max(given, key=lambda blessing: (blessing.create_time_since_epoch, blessing.id)))


def _model(blessing: metadata_store_pb2.Artifact) -> str:
    return str(blessing.custom_properties[constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY].string_value)


def _number(artifact: metadata_store_pb2.Artifact, name: str) -> float:
    value = artifact.custom_properties[name]  # Kubeflow stores all numbers as floating-point ones
    return value.double_value or value.int_value
