"""Serves the parts of the Vertex AI API for custom jobs, pipeline jobs and schedules.

It answers the SDK over REST, in the real service's words. Custom jobs run; pipeline
jobs do not, and go through the states that a test plans. Names in answers have the
project's number, even if the request had its name. Where the documentation is silent,
it is strict: it refuses to cancel a job that has ended, and to delete one that has not.
"""

import contextlib
import copy
import itertools
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import http_api
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from google.rpc import code_pb2, status_pb2
from vertex_admission import JOB_ID, Document, Errors, custom_job_errors, parse, pipeline_job_errors, schedule_errors
from vertex_connection import connected
from vertex_errors import ApiError
from vertex_filters import selector
from vertex_grpc import GrpcServer
from vertex_iam import OWNER
from vertex_pools import Options, Pools
from vertex_project import Project
from vertex_quotas import exceeded

QUOTA = "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus"

_MESSAGES = {"customJobs": types.CustomJob, "pipelineJobs": types.PipelineJob, "schedules": types.Schedule}
_PATH = re.compile(rf"/v1/projects/([^/]+)/locations/([^/]+)/({'|'.join(_MESSAGES)})(?:/([^/:]+))?(?::(cancel))?")
_VERBS = {  # (method, True for a single resource, action)
    ("POST", False, None): "create",
    ("GET", True, None): "get",
    ("GET", False, None): "list",
    ("POST", True, "cancel"): "cancel",
    ("DELETE", True, None): "delete",
}
_FAULTS = {
    429: QUOTA,
    500: "Internal error encountered.",
    503: "The service is currently unavailable.",
    504: "Deadline exceeded.",
}
_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
_QUERY = {"$alt", "alt"}  # that all requests may have
_QUERIES = {
    "pipelineJobs.create": {"pipelineJobId"},
    **{f"{kind}.list": {"filter", "pageSize", "pageToken", "orderBy", "readMask"} for kind in _MESSAGES},
}
_OUTPUT_ONLY = {"name", "state", "create_time", "update_time", "error", "job_detail"}


@dataclass
class Request:
    """A request to the service.

    Attributes:
      verb: Resource and action, such as `customJobs.create`; empty for an unknown path.
      method: HTTP method.
      path: Path, without the query.
      query: The query.
      account: Account that sends it.
      message: Resource to create.
    """

    verb: str
    method: str
    path: str
    query: dict[str, str]
    account: str
    message: Any = None


@dataclass(frozen=True)
class Task:
    """A task of a pipeline job.

    Attributes:
      name: Name of the task.
      state: Name of its `PipelineTaskDetail.State`.
      error: Error message.
      custom_job: Name of the custom job that it runs as.
    """

    name: str
    state: str = "SUCCEEDED"
    error: str = ""
    custom_job: str = ""

    def detail(self, number: int) -> types.PipelineTaskDetail:
        """Returns the task as the service describes it."""
        detail = types.PipelineTaskDetail(task_id=number, task_name=self.name, task_unique_name=self.name, state=self.state)
        if self.error:
            detail.error = status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message=self.error)
        if self.custom_job:
            detail.executor_detail.container_detail.main_job = self.custom_job
        return detail


@dataclass(frozen=True)
class _Change:
    state: str
    error: str = ""
    tasks: tuple[Task, ...] = ()
    code: int = 0  # of the error; 0 for the usual one


@dataclass(frozen=True)
class _Fault:
    code: int  # 0: the connection is dropped
    message: str
    verb: str | None
    after: bool = False  # True if the request is carried out first


class VertexApi:
    """The service, on a free port of loopback. A context manager.

    Args:
      folder: Folder for the output of replicas.
      options: How custom jobs run.
      project: The only project.
      number: Number of the project, valid in place of its name.
      location: The only location.
      error_delay: Seconds from the state of a failed job to its error. The real service
        takes about a minute.

    Attributes:
      requests: All requests.
      pools: Runs the custom jobs.
      around: The rest of the project: buckets, roles, images, quotas.
    """

    def __init__(
        self,
        folder: Path,
        options: Options | None = None,
        project: str = "project",
        number: str = "123456789012",
        location: str = "us-central1",
        error_delay: float = 0.3,
    ):
        self.error_delay = error_delay
        self._late: dict[str, tuple[float, status_pb2.Status]] = {}  # errors that jobs get later
        self.project, self.number, self.location = project, number, location
        self.around = Project(project, number, location)
        self.requests: list[Request] = []
        self._lock = threading.RLock()
        self.pools = Pools(folder, self._lock, self._report, options or Options())
        self._folder = folder
        self._resources: dict[str, Any] = {}  # last two parts of the name -> resource
        self._plans: list[list[_Change]] = []  # of jobs that do not exist yet
        self._planned: dict[str, list[_Change]] = {}
        self._ids = itertools.count(5_000_000_000_000_000_001)
        self._faults: list[_Fault] = []
        self._outage = (0.0, 0)  # end of an outage, and the code of its answers
        self.reachable_at = 0.0
        self._answers_at = 0.0
        self._closed = threading.Event()
        self._server = http_api.Server(self)
        self._grpc = GrpcServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "VertexApi":
        self.pools.__enter__()
        self._thread.start()
        self._grpc.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._grpc.stop()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.pools.__exit__(*error)

    @property
    def url(self) -> str:
        """Returns the service's address: the `api_endpoint` of the SDK."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def grpc_address(self) -> str:
        """Returns the service's address for gRPC."""
        return self._grpc.address

    @property
    def parent(self) -> str:
        """Returns the beginning of all names."""
        return f"projects/{self.number}/locations/{self.location}"

    @contextlib.contextmanager
    def connected(self, transport: str = "rest", account: str = "") -> Iterator[None]:
        """Connects the SDK of this process to the fake, within the block.

        `aiplatform.init` without an endpoint, transport or credentials keeps these.

        Args:
          transport: `rest`, or `grpc` as is the SDK's default.
          account: Account that sends the requests; empty for the project's owner.
        """
        with connected(self, transport, account):
            yield

    # Faults of the service.

    def fail(self, code: int, times: int = 1, verb: str | None = None, message: str = "") -> None:
        """Answers the next requests with an error.

        With a verb such as `customJobs.create`, affects only those requests.
        """
        with self._lock:
            self._faults += [_Fault(code, message, verb)] * times

    def drop(self, times: int = 1, verb: str | None = None, after: bool = False) -> None:
        """Ends the connections of the next requests without an answer.

        With `after`, the requests are carried out first.
        """
        with self._lock:
            self._faults += [_Fault(0, "", verb, after)] * times

    def outage(self, seconds: float, code: int = 503) -> None:
        """Answers all requests with an error for a number of seconds."""
        with self._lock:
            self._outage = (time.monotonic() + seconds, code)

    def unreachable(self, seconds: float) -> None:
        """Ends all connections without an answer for a number of seconds."""
        self.reachable_at = time.monotonic() + seconds

    def silent(self, seconds: float) -> None:
        """Accepts requests for a while, and never answers them.

        Without a timeout, the SDK waits for them forever.
        """
        self._answers_at = time.monotonic() + seconds

    # Resources. Names are full names, and messages are copies.

    def plan(self, *states: str, error: str = "", code: int = 0, tasks: Sequence[Task] = ()) -> None:
        """Plans the states of the next job that is created.

        The job takes the next state at each request for it, and stays in the last.

        Args:
          *states: Names such as `JOB_STATE_RUNNING` or, for a pipeline job,
            `PIPELINE_STATE_RUNNING`.
          error: Error message in the last state.
          code: Code of the error; 0 for the usual one.
          tasks: Tasks of a pipeline job in the last state.
        """
        with self._lock:
            changes = [_Change(state) for state in states[:-1]]
            self._plans.append([*changes, _Change(states[-1], error, tuple(tasks), code)])

    def set_state(self, name: str, state: str, error: str = "", tasks: Sequence[Task] = ()) -> None:
        """Sets the state of a job, and ends its plan and its processes."""
        with self._lock:
            self.pools.remove(self._find(name).name)
            self._planned[_key(name)] = []
            self._change(name, _Change(state, error, tuple(tasks)))

    def get(self, name: str) -> Any:
        """Returns a resource.

        Raises:
          ApiError: There is none of that name.
        """
        with self._lock:
            return copy.deepcopy(self._find(name))

    def state(self, name: str) -> str:
        """Returns the name of a job's state."""
        return str(self.get(name).state.name)

    def all(self, kind: str) -> list[Any]:
        """Returns all `customJobs`, `pipelineJobs` or `schedules`, the oldest first."""
        with self._lock:
            names = [resource.name for key, resource in self._resources.items() if key.startswith(f"{kind}/")]
            return [copy.deepcopy(self._find(name)) for name in names]

    def delete(self, name: str) -> None:
        """Deletes a resource in any state, and ends its processes."""
        with self._lock:
            self.pools.remove(self._find(name).name)
            del self._resources[_key(name)]

    def pids(self, name: str) -> dict[str, int]:
        """Returns replica -> process id, for the running replicas of a custom job."""
        with self._lock:
            return self.pools.pids(name)

    def printed(self, name: str, replica: str = "workerpool0-0") -> str:
        """Returns the output of a replica of a custom job, over all of its starts."""
        log = self._folder / name.rpartition("/")[2] / f"{replica}.log"
        return log.read_text() if log.exists() else ""

    def _find(self, name: str) -> Any:
        if _key(name) not in self._resources:
            kind = _MESSAGES[name.split("/")[-2]].__name__
            raise ApiError(404, f"The {kind} does not exist: {name}")
        resource = self._resources[_key(name)]
        due, error = self._late.get(_key(name), (0.0, None))
        if error and time.monotonic() >= due:
            del self._late[_key(name)]
            resource.error = error
            _stamp(resource)
        return resource

    def _set_error(self, job: Any, error: status_pb2.Status) -> None:
        """Sets a job's error: of a failed custom job later than its state."""
        if isinstance(job, types.CustomJob) and job.state == types.JobState.JOB_STATE_FAILED:
            self._late[_key(job.name)] = (time.monotonic() + self.error_delay, error)
        else:
            job.error = error

    def _report(self, name: str, state: types.JobState, error: status_pb2.Status | None) -> None:
        job = self._find(name)
        job.state = state
        if error:
            self._set_error(job, error)
        _stamp(job)

    def _change(self, name: str, change: _Change) -> None:
        job = self._find(name)
        job.state = change.state
        if change.tasks:
            job.job_detail.task_details = [task.detail(number) for number, task in enumerate(change.tasks, 1)]
        failed = [task.name for task in change.tasks if task.state == "FAILED"]
        error = change.error
        if failed and not error:
            error = f"The DAG failed because some tasks failed. The failed tasks are: [{', '.join(failed)}]."
        if error or change.code:
            code = code_pb2.FAILED_PRECONDITION if isinstance(job, types.PipelineJob) else code_pb2.INVALID_ARGUMENT
            self._set_error(job, status_pb2.Status(code=change.code or code, message=error))
        _stamp(job)

    # Requests to the service.

    def respond(self, request: http_api.Request) -> tuple[int, Document]:
        """Answers a request whose bearer token is the e-mail address of an account.

        Raises:
          ConnectionAbortedError: There is no answer.
        """
        account = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            return 200, self.answer(request.method, request.path, request.query, request.body, account)
        except ApiError as error:
            return error.code, error.document

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, account: str = "") -> Document:
        """Answers a request of an account; without one, of the project's owner.

        Raises:
          ApiError: The answer is an error.
          ConnectionAbortedError: There is no answer.
        """
        account = account or OWNER
        with self._lock:
            if (answer := self.around.answer(method, path, query, body, account)) is not None:
                return answer
        project, location, kind, ident, action = match.groups() if (match := _PATH.fullmatch(path)) else [""] * 5
        verb = _VERBS.get((method, bool(ident), action), "")
        request = Request(f"{kind}.{verb}" if match and verb else "", method, path, query, account)
        self.requests.append(request)
        if time.monotonic() < self._answers_at:
            self._closed.wait()
            raise ConnectionAbortedError
        with self._lock:
            fault = next((each for each in self._faults if each.verb in (None, request.verb)), None)
            if time.monotonic() < self._outage[0]:
                raise ApiError(self._outage[1], _FAULTS.get(self._outage[1], "Unavailable."))
            if fault:
                self._faults.remove(fault)
            if fault and not fault.after:
                self._fail(fault, request)
            if not request.verb:
                raise ApiError(404, "The requested URL was not found on this server.")
            if project not in (self.project, self.number):
                raise ApiError(403, _denied(request))
            if location != self.location:
                raise ApiError(404, f"The requested location {location} is not at this endpoint.")
            if unknown := set(query) - _QUERY - _QUERIES.get(request.verb, set()):
                name = sorted(unknown)[0]
                raise ApiError(400, f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.')
            if not self.around.iam.allows(account, f"aiplatform.{request.verb}", f"projects/{self.project}"):
                raise ApiError(403, _denied(request))
            message = self._do(request, verb, kind, f"{self.parent}/{kind}/{ident}", body)
            if fault:
                self._fail(fault, request)
            return _document(message, query)

    def _fail(self, fault: _Fault, request: Request) -> None:
        if not fault.code:
            raise ConnectionAbortedError
        default = _denied(request) if fault.code == 403 else _FAULTS.get(fault.code, "Refused.")
        raise ApiError(fault.code, fault.message or default)

    def _do(self, request: Request, verb: str, kind: str, name: str, body: bytes) -> Any:
        if verb == "create":
            try:
                request.message = parse(_MESSAGES[kind], body)
            except ValueError as error:
                raise ApiError(400, str(error)) from error
            return self._create(kind, copy.deepcopy(request.message), request)
        if verb == "list":
            return self._list(kind, request.query)
        job = self._find(name)
        if verb == "get":
            if self._planned.get(_key(name)):
                self._change(name, self._planned[_key(name)].pop(0))
            return job
        ended = kind == "schedules" or job.state.name.endswith(_FINAL)
        if verb == "cancel":
            if ended:
                raise ApiError(400, f"{name} has ended and cannot be cancelled.", "FAILED_PRECONDITION")
            self._cancel(name, job)
            return {}
        if not ended:
            raise ApiError(400, f"{name} has not ended and cannot be deleted.", "FAILED_PRECONDITION")
        self.delete(name)
        empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        return {"name": f"{self.parent}/operations/{next(self._ids)}", "done": True, "response": empty}

    def _create(self, kind: str, message: Any, request: Request) -> Any:
        ident = str(next(self._ids))
        plan: list[_Change] | None = None
        fields = type(message).pb(message)
        for output in _OUTPUT_ONLY & set(fields.DESCRIPTOR.fields_by_name):
            fields.ClearField(output)
        if kind == "customJobs":
            _refuse(custom_job_errors(message, self.location))
            if message.job_spec.service_account:
                self.around.check_act_as(request.account, message.job_spec.service_account)
            running = [job for job in self.all(kind) if not job.state.name.endswith(_FINAL)]
            if metrics := exceeded(message, running, self.around.limits):
                raise ApiError(429, f"The following quota metrics exceed quota limits: {','.join(metrics)}")
            message.state, plan = types.JobState.JOB_STATE_QUEUED, self._take_plan("JOB_STATE_")
        elif kind == "pipelineJobs":
            ident = request.query.get("pipelineJobId", f"pipeline-{ident}")
            _refuse(pipeline_job_errors(message, self.location))
            account = message.service_account or f"{self.number}-compute@developer.gserviceaccount.com"
            self.around.check_act_as(request.account, account)
            bucket = message.runtime_config.gcs_output_directory.removeprefix("gs://").partition("/")[0]
            self.around.check_bucket(bucket, account)
            if not JOB_ID.fullmatch(ident):
                _refuse(iter([("pipeline_job_id", f"Must match {JOB_ID.pattern}.")]))
            if f"{kind}/{ident}" in self._resources:
                raise ApiError(409, f"PipelineJob with the same ID {self.parent}/{kind}/{ident} already exists.")
            message.state, plan = types.PipelineState.PIPELINE_STATE_PENDING, self._take_plan("PIPELINE_STATE_")
        else:
            parents = tuple(f"projects/{project}/locations/{self.location}" for project in (self.project, self.number))
            _refuse(schedule_errors(message, parents, self.location))
            message.state = types.Schedule.State.ACTIVE
        message.name = f"{self.parent}/{kind}/{ident}"
        message.create_time = datetime.now(timezone.utc)
        self._resources[_key(message.name)] = message
        _stamp(message)
        if plan is not None:
            self._planned[_key(message.name)] = plan
        elif kind == "customJobs":
            self.pools.add(message.name, message)
        return message

    def _take_plan(self, prefix: str) -> list[_Change] | None:
        plan = next((plan for plan in self._plans if plan[0].state.startswith(prefix)), None)
        if plan is not None:
            self._plans.remove(plan)
        return plan

    def _cancel(self, name: str, job: Any) -> None:
        kind = "PIPELINE" if isinstance(job, types.PipelineJob) else "JOB"
        if kind == "JOB" and _key(name) not in self._planned:
            self.pools.cancel(name)
        else:
            self._planned[_key(name)] = [_Change(f"{kind}_STATE_CANCELLED", "CANCELED")]
        self._change(name, _Change(f"{kind}_STATE_CANCELLING"))

    def _list(self, kind: str, query: dict[str, str]) -> Document:
        """Returns a page of the resources that match a filter, the latest first."""
        selects = selector(query.get("filter", ""))
        matching = [resource for resource in reversed(self.all(kind)) if selects(resource)]
        start, size = int(query.get("pageToken") or 0), min(int(query.get("pageSize") or 100), 100)
        page = matching[start : start + size]
        for resource in page:
            if kind == "pipelineJobs" and "job_detail" in resource:
                del resource.job_detail  # lists leave it out, as documented
        token = {"nextPageToken": str(start + size)} if len(matching) > start + size else {}
        return {kind: [_document(resource, query) for resource in page], **token} if page else {}


def _key(name: str) -> str:
    return "/".join(name.split("/")[-2:])


def _document(message: Any, query: dict[str, str]) -> Document:
    if isinstance(message, dict):
        return message
    numbers = "enum-encoding=int" in query.get("$alt", "")
    document: Document = json_format.MessageToDict(type(message).pb(message), use_integers_for_enums=numbers)
    return document


def _stamp(resource: Any) -> None:
    """Sets the times that follow from a resource's state."""
    resource.update_time = datetime.now(timezone.utc)
    if isinstance(resource, types.Schedule):
        return
    if resource.state.name.endswith("_RUNNING") and not resource.start_time:
        resource.start_time = resource.update_time
    if resource.state.name.endswith(_FINAL):
        resource.end_time = resource.update_time


def _refuse(errors: Errors) -> None:
    listed = list(errors)
    if listed:
        lines = [f"{number}.Field: {field}; Message: {message}\t" for number, (field, message) in enumerate(listed, 1)]
        raise ApiError(400, "List of found errors:\t" + "".join(lines))


def _denied(request: Request) -> str:
    resource = f"//aiplatform.googleapis.com{request.path.removeprefix('/v1').partition(':')[0]}"
    return f"Permission 'aiplatform.{request.verb}' denied on resource '{resource}' (or it may not exist)."
