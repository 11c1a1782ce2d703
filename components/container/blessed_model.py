"""Finds the latest blessed model of a pipeline.

Evaluator compares a new model with it. TFX has a resolver for this, which open-source
Kubeflow Pipelines does not support. Its metadata store has what is needed: each
ModelBlessing, with its pipeline and its model.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants

from tfx_distribute.components.launchers import retry
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

PIPELINE_CONTEXT = "system.Pipeline"  # Kubeflow's context type of all runs of a pipeline
BLESSING = "tfx.ModelBlessing"  # Kubeflow's artifact type
TIMEOUT_SECONDS = 30.0
# The same as in Kubeflow Pipelines' client. A few hundred runs exceed gRPC's default of
# 4 MiB.
MAX_ANSWER_BYTES = 100 << 20
# For a store that starts again. Kubeflow Pipelines does not try a failed step again.
RETRY_SECONDS = 40.0
_TLS_FLAG, _CA_FLAG = "--metadata_tls_enabled", "--ca_cert_path"  # of Kubeflow's launcher


def find(address: str, pipeline: str, pipeline_root: str, launcher: Sequence[str] = ()) -> str | None:
    """Returns the address of the latest blessed model of a pipeline.

    Args:
      address: `host:port` of the metadata store.
      pipeline: Name of the pipeline.
      pipeline_root: Address that its artifacts are written under. The store identifies
        a pipeline by its name only, and another team may use the same name.
      launcher: Command line of Kubeflow's launcher, which says if the store is behind
        TLS; see `launcher_command`.

    Returns:
      The address; None if no model was blessed yet.

    Raises:
      ConfigurationError: The store does not answer.
    """
    host, _, port = address.rpartition(":")
    config = metadata_store_pb2.MetadataStoreClientConfig(host=host, port=int(port), client_timeout_sec=TIMEOUT_SECONDS)
    config.channel_arguments.max_receive_message_length = MAX_ANSWER_BYTES
    if _TLS_FLAG in launcher:
        config.ssl_config.SetInParent()
        if _CA_FLAG in launcher:
            config.ssl_config.custom_ca = Path(launcher[launcher.index(_CA_FLAG) + 1]).read_text()

    def ask() -> list[metadata_store_pb2.Artifact]:
        store = metadata_store.MetadataStore(config)
        context = store.get_context_by_type_and_name(PIPELINE_CONTEXT, pipeline)
        artifacts = store.get_artifacts_by_context(context.id) if context else []
        type_ids = {artifact_type.id for artifact_type in store.get_artifact_types() if artifact_type.name == BLESSING}
        return [artifact for artifact in artifacts if artifact.type_id in type_ids]

    def is_transient(error: Exception) -> bool:
        return isinstance(error, errors.UnavailableError)

    try:
        blessings = retry.call_with_retries(ask, "the metadata store", is_transient, RETRY_SECONDS)
    except errors.NotFoundError:
        return None
    except (TrainingError, errors.DeadlineExceededError) as error:
        raise ConfigurationError(
            f"targets.kubeflow.metadata_service: the metadata store does not answer at {address} ({error}); write the "
            "address of Kubeflow Pipelines' metadata-grpc-service, as this step's pod reaches it; behind TLS, by a name "
            "that is in its certificate"
        ) from error
    return select_latest(blessings, pipeline_root)


def launcher_command() -> list[str]:
    """Returns the command line of Kubeflow's launcher, whose child a step is.

    From version 2.15 on it has flags for TLS. Source: `initPodSpecPatch` in
    https://github.com/kubeflow/pipelines/blob/master/backend/src/v2/driver/driver.go
    """
    command = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace")
    own, _, _ = command.partition("\0--\0")  # then comes that of the step
    return own.split("\0")


def select_latest(blessings: Iterable[metadata_store_pb2.Artifact], pipeline_root: str) -> str | None:
    """Returns the address of the model below a root with the latest blessing.

    Args:
      blessings: ModelBlessing artifacts.
      pipeline_root: Address that the model has to be under.

    Returns:
      The address; None if there is no such model.
    """
    positive = [
        blessing
        for blessing in blessings
        if _numeric_property(blessing, constants.ARTIFACT_PROPERTY_BLESSED_KEY) == 1
        and _model_uri(blessing).startswith(f"{pipeline_root.rstrip('/')}/")
    ]
    if not positive:
        return None
    return _model_uri(max(positive, key=lambda blessing: (blessing.create_time_since_epoch, blessing.id)))


def _model_uri(blessing: metadata_store_pb2.Artifact) -> str:
    """Returns the address of the model that a blessing is for."""
    return str(blessing.custom_properties[constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY].string_value)


def _numeric_property(artifact: metadata_store_pb2.Artifact, name: str) -> float:
    value = artifact.custom_properties[name]  # Kubeflow stores all numbers as doubles
    return value.double_value or value.int_value
