"""Finds the latest artifact of a pipeline, such as its latest blessed model.

Evaluator compares a new model with that one, and ExampleValidator new data with those
before. TFX has resolvers for this, which open-source Kubeflow Pipelines does not
support. Its metadata store has what is needed.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2
from tfx.components.evaluator import constants

from tfx_distribute.components.container.names import BLESSING
from tfx_distribute.components.launchers import retry
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

PIPELINE_CONTEXT = "system.Pipeline"  # Kubeflow's context type of all runs of a pipeline
TIMEOUT_SECONDS = 30.0
# The same as in Kubeflow Pipelines' client. A few hundred runs exceed gRPC's default of
# 4 MiB.
MAX_ANSWER_BYTES = 100 << 20
# For a store that starts again. Kubeflow Pipelines does not try a failed step again.
RETRY_SECONDS = 40.0
_TLS_FLAG, _CA_FLAG = "--metadata_tls_enabled", "--ca_cert_path"  # of Kubeflow's launcher


def find(
    address: str, pipeline: str, pipeline_root: str, launcher: Sequence[str] = (), type_name: str = BLESSING
) -> str | None:
    """Returns the address of a pipeline's latest artifact of a type.

    Steps that fail have no artifacts there.

    Args:
      address: `host:port` of the metadata store.
      pipeline: Name of the pipeline.
      pipeline_root: Address that its artifacts are written under. The store identifies
        a pipeline by its name only, and another team may use the same name.
      launcher: Command line of Kubeflow's launcher, which says if the store is behind
        TLS; see `launcher_command`.
      type_name: Kubeflow's name of the type; that of blessings for the latest blessed
        model.

    Returns:
      The address; None if there is none yet.

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
        type_ids = {artifact_type.id for artifact_type in store.get_artifact_types() if artifact_type.name == type_name}
        return [artifact for artifact in artifacts if artifact.type_id in type_ids]

    def is_transient(error: Exception) -> bool:
        return isinstance(error, errors.UnavailableError)

    try:
        artifacts = retry.call_with_retries(ask, "the metadata store", is_transient, RETRY_SECONDS)
    except errors.NotFoundError:
        return None
    except (TrainingError, errors.DeadlineExceededError) as error:
        raise ConfigurationError(
            f"targets.kubeflow.metadata_service: the metadata store does not answer at {address} ({error}); write the "
            "address of Kubeflow Pipelines' metadata-grpc-service, as this step's pod reaches it; behind TLS, by a name "
            "that is in its certificate"
        ) from error
    return select_latest(artifacts, pipeline_root, type_name)


def launcher_command() -> list[str]:
    """Returns the command line of Kubeflow's launcher, whose child a step is.

    From version 2.15 on it has flags for TLS. Source: `initPodSpecPatch` in
    https://github.com/kubeflow/pipelines/blob/master/backend/src/v2/driver/driver.go
    """
    command = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace")
    own, _, _ = command.partition("\0--\0")  # then comes that of the step
    return own.split("\0")


def select_latest(
    artifacts: Iterable[metadata_store_pb2.Artifact], pipeline_root: str, type_name: str = BLESSING
) -> str | None:
    """Returns the address of the latest artifact, or blessed model, below a root.

    Args:
      artifacts: Artifacts of one type.
      pipeline_root: Address that the artifact, or the blessed model, has to be under.
      type_name: Kubeflow's name of the type.

    Returns:
      The address; None if there is none.
    """
    is_blessing = type_name == BLESSING
    found = [
        artifact
        for artifact in artifacts
        if not is_blessing or _numeric_property(artifact, constants.ARTIFACT_PROPERTY_BLESSED_KEY) == 1
    ]
    address = _model_uri if is_blessing else lambda artifact: str(artifact.uri)
    below = [artifact for artifact in found if address(artifact).startswith(f"{pipeline_root.rstrip('/')}/")]
    if not below:
        return None
    return address(max(below, key=lambda artifact: (artifact.create_time_since_epoch, artifact.id)))


def _model_uri(blessing: metadata_store_pb2.Artifact) -> str:
    """Returns the address of the model that a blessing is for."""
    return str(blessing.custom_properties[constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY].string_value)


def _numeric_property(artifact: metadata_store_pb2.Artifact, name: str) -> float:
    value = artifact.custom_properties[name]  # Kubeflow stores all numbers as doubles
    return value.double_value or value.int_value
