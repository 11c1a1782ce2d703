"""Reads the metadata store of Kubeflow Pipelines, as its steps reach it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import retry
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

_Value = TypeVar("_Value")

# Kubeflow's types of the contexts of all runs of a pipeline, and of one run.
PIPELINE_CONTEXT, RUN_CONTEXT = "system.Pipeline", "system.PipelineRun"
METADATA, API = "metadata", "ml_pipeline"  # names of services in flags of the launcher
# The same as in Kubeflow Pipelines' client. A few hundred runs exceed gRPC's default of
# 4 MiB.
MAX_ANSWER_BYTES = 100 << 20


def launcher_command() -> list[str]:
    """Returns the command line of Kubeflow's launcher, whose child a step is.

    From version 2.15 on it has flags for TLS. Source: `initPodSpecPatch` in
    https://github.com/kubeflow/pipelines/blob/master/backend/src/v2/driver/driver.go
    """
    command = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace")
    own, _, _ = command.partition("\0--\0")  # then comes that of the step
    return own.split("\0")


def find_authority(service: str) -> str | None:
    """Returns the path of the CA certificate of a service.

    `service` is `METADATA` or `API`. Empty for a public authority, None without TLS.
    """
    launcher, flag, certificate = launcher_command(), f"--{service}_tls_enabled", "--ca_cert_path"
    if flag not in launcher and f"{flag}=true" not in launcher:
        return None
    return launcher[launcher.index(certificate) + 1] if certificate in launcher else ""


def list_artifacts(address: str, context_type: str, context: str) -> dict[str, list[metadata_store_pb2.Artifact]]:
    """Returns the artifacts of a pipeline, or of one run: type -> artifacts.

    `context` is the name of the pipeline or the id of the run; types have Kubeflow's
    names, such as `tfx.Model`. Steps that fail have no artifacts. Raises a
    ConfigurationError if the store does not answer.
    """

    def read(store: metadata_store.MetadataStore) -> dict[str, list[metadata_store_pb2.Artifact]]:
        found = store.get_context_by_type_and_name(context_type, context)
        names = {kind.id: kind.name for kind in store.get_artifact_types()}
        artifacts: dict[str, list[metadata_store_pb2.Artifact]] = {}
        for artifact in store.get_artifacts_by_context(found.id) if found else ():
            artifacts.setdefault(names[artifact.type_id], []).append(artifact)
        return artifacts

    return _ask(address, read)


def list_states(address: str, run_id: str) -> dict[str, str]:
    """Returns the states of the steps of a run, as their launchers have stored them.

    Name of a step -> `COMPLETE`, `CACHED`, `FAILED` or `RUNNING`. A step whose pod was
    lost stays `RUNNING`; steps that never started are missing. Raises a
    ConfigurationError if the store does not answer.
    """

    def read(store: metadata_store.MetadataStore) -> dict[str, str]:
        found = store.get_context_by_type_and_name(RUN_CONTEXT, run_id)
        executions = store.get_executions_by_context(found.id) if found else ()
        return {
            each.custom_properties["task_name"].string_value: metadata_store_pb2.Execution.State.Name(each.last_known_state)
            for each in sorted(executions, key=lambda each: each.id)  # the last of several tries counts
        }

    return _ask(address, read)


def _ask(address: str, read: Callable[[metadata_store.MetadataStore], dict[str, _Value]]) -> dict[str, _Value]:
    """Calls `read` with the metadata store; returns {} if nothing is stored yet."""
    host, _, port = address.rpartition(":")
    config = metadata_store_pb2.MetadataStoreClientConfig(
        host=host, port=int(port), client_timeout_sec=timeouts.METADATA_SECONDS
    )
    config.channel_arguments.max_receive_message_length = MAX_ANSWER_BYTES
    if (authority := find_authority(METADATA)) is not None:
        config.ssl_config.SetInParent()
        if authority:
            config.ssl_config.custom_ca = Path(authority).read_text()
    try:
        return retry.call_with_retries(
            lambda: read(metadata_store.MetadataStore(config)),
            "the metadata store",
            lambda error: isinstance(error, errors.UnavailableError),
            timeouts.METADATA_RETRY_SECONDS,
        )
    except errors.NotFoundError:
        return {}
    except (TrainingError, errors.DeadlineExceededError) as error:
        raise ConfigurationError(
            f"targets.kubeflow.metadata_service: the metadata store does not answer at {address} ({error}); write the "
            "address of Kubeflow Pipelines' metadata-grpc-service, as this step's pod reaches it; behind TLS, by a name "
            "that is in its certificate"
        ) from error
