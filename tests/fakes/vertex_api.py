"""Serves the parts of the Vertex AI API for custom jobs, pipeline jobs and schedules.

It answers the SDK over gRPC, with the published messages. Custom jobs run; pipeline
jobs go through the states that a test plans.
"""

import concurrent.futures
import contextlib
import copy
import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from google.cloud.aiplatform_v1 import types
from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport
from google.cloud.aiplatform_v1.services.pipeline_service.transports import PipelineServiceGrpcTransport
from google.cloud.aiplatform_v1.services.schedule_service.transports import ScheduleServiceGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import status_pb2
from vertex_pools import Options, PoolJob

QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus"
_MESSAGES = {
    "PERMISSION_DENIED": "Permission 'aiplatform.customJobs.create' denied on resource (or it may not exist).",
    "RESOURCE_EXHAUSTED": QUOTA,
    "UNAVAILABLE": "The service is currently unavailable.",
}
_TRANSPORTS = (JobServiceGrpcTransport, PipelineServiceGrpcTransport, ScheduleServiceGrpcTransport)
_METHOD = re.compile(
    r"/google\.cloud\.aiplatform\.v1\.\w+/((Create|Get|List|Cancel|Pause|Resume|Delete)(CustomJob|PipelineJob|Schedule)s?)"
)
_PLAIN = (empty_pb2.Empty, operations_pb2.Operation)  # not wrapped by proto-plus
_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


class RefusedError(Exception):
    """A request that is answered with an error, of the name of a gRPC code."""

    def __init__(self, code: str, message: str = ""):
        super().__init__(message or _MESSAGES.get(code, code))
        self.code = grpc.StatusCode[code]


class VertexApi:
    """The service, on a free port of loopback. A context manager.

    Attributes:
      error_delay: Seconds from the state of a failed job to its error.
      forked: Forks the processes of jobs that come from now on; None for new ones.
    """

    def __init__(
        self, folder: Path, options: Options | None = None, project: str = "project", location: str = "us-central1"
    ):
        self.error_delay, self.forked = 0.3, None  # type: float, ForkedProcesses | None
        self.project, self.location = project, location
        self.parent = f"projects/{project}/locations/{location}"
        self._folder, self._options = folder, options or Options()
        self._lock = threading.RLock()
        self._resources: dict[str, Any] = {}
        self._running: dict[str, PoolJob] = {}
        self._late: dict[str, tuple[float, status_pb2.Status]] = {}  # errors that jobs get later
        self._plans: list[list[Callable[[Any], None]]] = []  # of jobs that do not exist yet
        self._planned: dict[str, list[Callable[[Any], None]]] = {}
        self._faults: list[tuple[str | None, RefusedError]] = []
        self._outage_until = 0.0
        self._ids = itertools.count(5_000_000_000_000_000_001)
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> "VertexApi":
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(None).wait(5)
        for job in list(self._running.values()):
            job.cancel()
            job.join(30)

    def connected(self) -> contextlib.ExitStack:
        """Connects the SDK of this process to the fake, within the block."""
        return redirect(self.address, self.project, self.location)

    def fail(self, code: str, times: int = 1, verb: str | None = None) -> None:
        """Answers the next requests with an error."""
        with self._lock:
            self._faults += [(verb, RefusedError(code))] * times

    def outage(self, seconds: float) -> None:
        """Answers all requests with an error for a number of seconds."""
        self._outage_until = time.monotonic() + seconds

    def plan(self, *states: str, error: str = "", code: int = 0, tasks: Sequence[types.PipelineTaskDetail] = ()) -> None:
        """Plans the states of the next job; it takes one at each request for it."""
        *first, last = states
        changes = [lambda job, state=state: self._change(job, state) for state in first]
        self._plans.append([*changes, lambda job: self._change(job, last, error, code, tasks)])

    def set_state(self, name: str, state: str, tasks: Sequence[types.PipelineTaskDetail] = ()) -> None:
        """Sets the state of a job, and ends its plan and its processes."""
        self._end(name)
        with self._lock:
            self._planned.pop(name, None)
            self._change(self._resources[name], state, tasks=tasks)

    def state(self, name: str) -> str:
        """Returns the name of a job's state, such as `RUNNING`."""
        return str(self.get(name).state.name.partition("_STATE_")[2])

    def get(self, name: str) -> Any:
        """Returns a resource."""
        with self._lock:
            return copy.deepcopy(self._find(name))

    def all(self, kind: str) -> list[Any]:
        """Returns all `customJobs`, `pipelineJobs` or `schedules`, the oldest first."""
        with self._lock:
            return [self.get(name) for name in self._resources if f"/{kind}/" in name]

    def delete(self, name: str) -> None:
        """Deletes a job in any state, and ends its processes."""
        self._end(name)
        del self._resources[name]

    def printed(self, name: str, replica: str = "workerpool0-0") -> str:
        """Returns the output of a replica of a custom job, over all of its starts."""
        log = self._folder / name.rpartition("/")[2] / f"{replica}.log"
        return log.read_text() if log.exists() else ""

    def answer(self, verb: str, request: Any) -> Any:
        """Answers a request; raises RefusedError if the answer is an error."""
        with self._lock:
            if time.monotonic() < self._outage_until:
                raise RefusedError("UNAVAILABLE")
            fault = next((each for each in self._faults if each[0] in (None, verb)), None)
            if fault:
                self._faults.remove(fault)
                raise fault[1]
            return copy.deepcopy(self._do(verb, request))

    def _do(self, verb: str, request: Any) -> Any:
        action, kind = re.fullmatch(r"([A-Z][a-z]+)(\w+)", verb).groups()  # type: ignore[union-attr]
        if action == "Create":
            return self._create(kind, request)
        if action == "List":
            kind = f"{kind[0].lower()}{kind[1:]}"
            label = re.fullmatch(r'labels\.([\w-]+)="([\w-]*)"', request.filter)
            matching = [each for each in reversed(self.all(kind)) if not label or each.labels.get(label[1]) == label[2]]
            field = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", kind)
            return getattr(types, f"{verb}Response")(**{field: matching})
        job = self._find(request.name)
        if kind == "Schedule":
            return self._change_schedule(action, job)
        if action == "Get":
            if self._planned.get(job.name):
                self._planned[job.name].pop(0)(job)
            return job
        if job.state.name.endswith(_FINAL):
            raise RefusedError("FAILED_PRECONDITION", f"{job.name} has ended and cannot be cancelled.")
        self._change(job, "CANCELLING")
        if job.name in self._running:
            self._running[job.name].cancel()
        else:
            self._planned[job.name] = [lambda job: self._change(job, "CANCELLED", "CANCELED")]
        return empty_pb2.Empty()

    def _change_schedule(self, action: str, schedule: Any) -> Any:
        if action == "Delete":
            del self._resources[schedule.name]
            return operations_pb2.Operation(name=f"{schedule.name}/operations/1", done=True)
        allowed, state = {"Pause": ("ACTIVE", "PAUSED"), "Resume": ("PAUSED", "ACTIVE")}[action]
        if schedule.state.name != allowed:
            raise RefusedError("FAILED_PRECONDITION", f"{schedule.name} is not {allowed}.")
        schedule.state = state
        return empty_pb2.Empty()

    def _create(self, kind: str, request: Any) -> Any:
        if request.parent != self.parent:
            raise RefusedError("PERMISSION_DENIED")
        ident = str(next(self._ids))
        if kind == "CustomJob":
            message = request.custom_job
        elif kind == "PipelineJob":
            message, ident = request.pipeline_job, request.pipeline_job_id
        else:
            message = request.schedule
        message.name = f"{self.parent}/{kind[0].lower()}{kind[1:]}s/{ident}"
        if message.name in self._resources:
            raise RefusedError("ALREADY_EXISTS", f"{message.name} already exists.")
        message.create_time = datetime.now(timezone.utc)
        self._resources[message.name] = message
        if kind == "Schedule":
            message.state = "ACTIVE"
            message.next_run_time = message.create_time
            return message
        self._change(message, "QUEUED")
        if self._plans:
            self._planned[message.name] = self._plans.pop(0)
        elif kind == "CustomJob":
            folder = self._folder / ident
            report = lambda state, error, name=message.name: self._report(name, state, error)  # noqa: E731
            job = PoolJob(message.job_spec, folder, self._options, report, self.forked)
            self._running[message.name] = job
            job.start()
        return message

    def _report(self, name: str, state: str, error: str) -> None:
        with self._lock:
            if name in self._running:  # else somebody has deleted it, or set its state
                self._change(self._resources[name], state, error)
                if state in _FINAL:
                    del self._running[name]

    def _end(self, name: str) -> None:
        with self._lock:
            job = self._running.pop(name, None)
        if job:
            job.cancel()
            job.join(30)

    def _find(self, name: str) -> Any:
        if name not in self._resources:
            raise RefusedError("NOT_FOUND", f"The job does not exist: {name}")
        due, error = self._late.get(name, (0.0, None))
        if error and time.monotonic() >= due:
            self._resources[name].error = error
            del self._late[name]
        return self._resources[name]

    def _change(
        self, job: Any, state: str, error: str = "", code: int = 0, tasks: Sequence[types.PipelineTaskDetail] = ()
    ) -> None:
        is_pipeline = isinstance(job, types.PipelineJob)
        job.state = f"{'PIPELINE' if is_pipeline else 'JOB'}_STATE_{state}"
        if tasks:
            job.job_detail.task_details = list(tasks)
        if state in _FINAL:
            job.end_time = datetime.now(timezone.utc)
        status = status_pb2.Status(code=code or 3, message=error) if error or code else None
        if status and state == "FAILED" and not is_pipeline:
            self._late[job.name] = (time.monotonic() + self.error_delay, status)
        elif status:
            job.error = status


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, api: VertexApi):
        self._api = api

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns what answers a call, or None for a method that there is not."""
        method = _METHOD.fullmatch(details.method)
        return method and grpc.unary_unary_rpc_method_handler(lambda body, context: self._answer(method[1], body, context))

    def _answer(self, verb: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            answer = self._api.answer(verb, getattr(types, f"{verb}Request").deserialize(body))
        except RefusedError as error:
            context.abort(error.code, str(error))
        return bytes(answer.SerializeToString() if isinstance(answer, _PLAIN) else type(answer).serialize(answer))


def redirect(address: str, project: str, location: str) -> contextlib.ExitStack:
    """Connects the SDK to a fake, until the returned stack is closed."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    def create_channel(*_: object, **__: object) -> grpc.Channel:
        return grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    stack = contextlib.ExitStack()
    config = aiplatform.initializer.global_config
    stack.callback(vars(config).update, dict(vars(config)))
    for transport in _TRANSPORTS:
        stack.enter_context(mock.patch.object(transport, "create_channel", create_channel))
    aiplatform.init(project=project, location=location, credentials=AnonymousCredentials())
    return stack
