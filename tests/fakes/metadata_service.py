"""Serves ML Metadata over gRPC, like Kubeflow Pipelines.

The store is TFX's own; the server has only the methods that our clients call.
"""

from concurrent import futures
from pathlib import Path
from types import TracebackType

import grpc
from ml_metadata import errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as pb
from ml_metadata.proto import metadata_store_service_pb2 as messages
from ml_metadata.proto import metadata_store_service_pb2_grpc as service

PIPELINE, RUN = "system.Pipeline", "system.PipelineRun"


class MetadataService(service.MetadataStoreServiceServicer):
    """The store and its server, on loopback.

    Args:
      port: Port of the server; 0 for any that is free.
      certificate: PEM file with its certificate and key, for TLS.

    Attributes:
      address: The server's `host:port`.
      store: The store.
    """

    def __init__(self, port: int = 0, certificate: Path | None = None) -> None:
        config = pb.ConnectionConfig()
        config.fake_database.SetInParent()
        self.store = metadata_store.MetadataStore(config)
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        service.add_MetadataStoreServiceServicer_to_server(self, self._server)
        address = f"127.0.0.1:{port}"
        if certificate:
            pem = certificate.read_bytes()
            port = self._server.add_secure_port(address, grpc.ssl_server_credentials([(pem, pem)]))
        else:
            port = self._server.add_insecure_port(address)
        self.address = f"127.0.0.1:{port}"

    def __enter__(self) -> "MetadataService":
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop(0)

    def context(self, kind: str, name: str) -> int:
        """Returns the id of a context, and creates the context if it is missing."""
        context = self.store.get_context_by_type_and_name(kind, name)
        if context:
            return int(context.id)
        type_id = self.store.put_context_type(pb.ContextType(name=kind))
        (context_id,) = self.store.put_contexts([pb.Context(type_id=type_id, name=name)])
        return int(context_id)

    def record(self, title: str, artifact: pb.Artifact, contexts: list[int]) -> pb.Artifact:
        """Stores an artifact of a run."""
        artifact.type_id = self.store.put_artifact_type(pb.ArtifactType(name=title))
        (artifact_id,) = self.store.put_artifacts([artifact])
        attributions = [pb.Attribution(artifact_id=artifact_id, context_id=context) for context in contexts]
        self.store.put_attributions_and_associations(attributions, [])
        (stored,) = self.store.get_artifacts_by_id([artifact_id])
        return stored

    def record_step(self, name: str, state: str, contexts: list[int]) -> None:
        """Stores the state of a step, as drivers and launchers do."""
        type_id = self.store.put_execution_type(pb.ExecutionType(name="system.ContainerExecution"))
        step = pb.Execution(type_id=type_id, last_known_state=pb.Execution.State.Value(state))
        step.custom_properties["task_name"].string_value = name
        (step_id,) = self.store.put_executions([step])
        associations = [pb.Association(execution_id=step_id, context_id=context) for context in contexts]
        self.store.put_attributions_and_associations([], associations)

    def GetContextByTypeAndName(self, request, context):  # noqa: N802 (the service's name)
        stored = self._answer(
            context, lambda: self.store.get_context_by_type_and_name(request.type_name, request.context_name)
        )
        return _response("GetContextByTypeAndName", context=stored)

    def GetArtifactsByContext(self, request, context):  # noqa: N802
        artifacts = self._answer(context, lambda: self.store.get_artifacts_by_context(request.context_id))
        return _response("GetArtifactsByContext", artifacts=artifacts)

    def GetExecutionsByContext(self, request, context):  # noqa: N802
        executions = self._answer(context, lambda: self.store.get_executions_by_context(request.context_id))
        return _response("GetExecutionsByContext", executions=executions)

    def GetArtifactTypes(self, request, context):  # noqa: N802
        return _response("GetArtifactTypes", artifact_types=self._answer(context, self.store.get_artifact_types))

    @staticmethod
    def _answer(context, query):
        try:
            return query()
        except errors.NotFoundError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))


def _response(method, **values):
    return getattr(messages, f"{method}Response")(**values)
