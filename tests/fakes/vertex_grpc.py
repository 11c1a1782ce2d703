"""Serves the stand-in of Vertex AI over gRPC, the default of the SDK.

Each call is turned into the REST request that the SDK's types document, so that both
ways meet the same rules. The account that calls is in the metadata.
"""

import concurrent.futures
import contextlib
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import grpc
from google.cloud.aiplatform_v1 import types
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport
from google.cloud.aiplatform_v1.services.pipeline_service.transports import PipelineServiceGrpcTransport
from google.cloud.aiplatform_v1.services.schedule_service.transports import ScheduleServiceGrpcTransport
from google.protobuf import empty_pb2, json_format
from vertex_errors import ApiError

if TYPE_CHECKING:
    from vertex_api import VertexApi

_ACCOUNT = "account"
_TRANSPORTS = (JobServiceGrpcTransport, PipelineServiceGrpcTransport, ScheduleServiceGrpcTransport)
# Method -> request, REST request, field of the body, fields of the query.
_METHODS: dict[str, tuple[Any, str, str, dict[str, str]]] = {
    "JobService/CreateCustomJob": (types.CreateCustomJobRequest, "POST {parent}/customJobs", "custom_job", {}),
    "JobService/GetCustomJob": (types.GetCustomJobRequest, "GET {name}", "", {}),
    "JobService/ListCustomJobs": (
        types.ListCustomJobsRequest,
        "GET {parent}/customJobs",
        "",
        {"filter": "filter", "page_token": "pageToken"},
    ),
    "JobService/CancelCustomJob": (types.CancelCustomJobRequest, "POST {name}:cancel", "", {}),
    "PipelineService/CreatePipelineJob": (
        types.CreatePipelineJobRequest,
        "POST {parent}/pipelineJobs",
        "pipeline_job",
        {"pipeline_job_id": "pipelineJobId"},
    ),
    "PipelineService/GetPipelineJob": (types.GetPipelineJobRequest, "GET {name}", "", {}),
    "ScheduleService/CreateSchedule": (types.CreateScheduleRequest, "POST {parent}/schedules", "schedule", {}),
    "ScheduleService/GetSchedule": (types.GetScheduleRequest, "GET {name}", "", {}),
}
_ANSWERS: dict[str, Any] = {
    "CustomJob": types.CustomJob,
    "ListCustomJobs": types.ListCustomJobsResponse,
    "PipelineJob": types.PipelineJob,
    "Schedule": types.Schedule,
}


class GrpcServer:
    """The service's gRPC server, on a free port of loopback.

    Args:
      api: Answers the requests.
    """

    def __init__(self, api: "VertexApi"):
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handler(api),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def start(self) -> None:
        """Starts to answer."""
        self._server.start()

    def stop(self) -> None:
        """Ends all connections."""
        self._server.stop(None).wait(5)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, api: "VertexApi"):
        self._api = api

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns what answers a call, or None for a method that there is not."""
        name = details.method.removeprefix("/google.cloud.aiplatform.v1.")
        if name not in _METHODS:
            return None
        account = dict(details.invocation_metadata).get(_ACCOUNT, "")
        return grpc.unary_unary_rpc_method_handler(lambda body, context: self._answer(name, account, body, context))

    def _answer(self, name: str, account: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        request_type, rest, body_field, query_fields = _METHODS[name]
        request = request_type.deserialize(body)
        method, _, path = rest.partition(" ")
        path = re.sub(r"\{(\w+)\}", lambda field: getattr(request, field[1]), path)
        query = {to: value for field, to in query_fields.items() if (value := getattr(request, field))}
        content = b""
        if body_field:
            message = getattr(request, body_field)
            content = type(message).to_json(message, including_default_value_fields=False).encode()
        try:
            document = self._api.answer(method, f"/v1/{path}", query, content, account)
        except ConnectionAbortedError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        except ApiError as error:
            context.abort(grpc.StatusCode[error.status], str(error))
        answer_type = _ANSWERS.get(re.sub(r".*/(Create|Get)?", "", name))
        if answer_type is None:  # of a cancellation
            return bytes(empty_pb2.Empty().SerializeToString())
        answer = json_format.ParseDict(document, answer_type.pb(answer_type()))
        return bytes(answer.SerializeToString())


class _AddAccount(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    def __init__(self, account: str):
        self._account = account

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Adds the account to a call. A channel without TLS takes no credentials."""
        metadata = [*(details.metadata or ()), (_ACCOUNT, self._account)]
        return continuation(details._replace(metadata=metadata), request)


def redirect(address: str, account: str) -> contextlib.ExitStack:
    """Redirects the SDK's gRPC channels, until the returned stack is closed.

    Args:
      address: Address of a `GrpcServer`.
      account: Account that calls; empty for the project's owner.
    """

    def create_channel(*_: object, **__: object) -> grpc.Channel:
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        return grpc.intercept_channel(channel, _AddAccount(account)) if account else channel

    stack = contextlib.ExitStack()
    for transport in _TRANSPORTS:
        stack.enter_context(mock.patch.object(transport, "create_channel", create_channel))
    return stack
