"""Serves the parts of the Vertex AI API for custom jobs, pipeline jobs and schedules.

It answers the SDK over REST, in the real service's words. Custom jobs run; pipeline
jobs do not, and go through the states that a test plans. Names in answers have the
project's number, even if the request had its name. Where the documentation is silent,
it is strict: it refuses to cancel a job that has ended, and to delete one that has not.
"""

import contextlib
import copy
import functools
import http.server
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

from google.auth.credentials import AnonymousCredentials
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from google.rpc import code_pb2, status_pb2
from vertex_admission import JOB_ID, Document, Errors, custom_job_errors, parse, pipeline_job_errors, schedule_errors
from vertex_pools import Options, Pools

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
_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_FAULTS = {
    429: QUOTA,
    500: "Internal error encountered.",
    503: "The service is currently unavailable.",
    504: "Deadline exceeded.",
}
_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
_TERM = re.compile(r'(labels\.[\w-]+|\w+)\s*(!=|=|:)\s*(?:"([^"]*)"|([^\s"]+))')
_OUTPUT_ONLY = {"name", "state", "create_time", "update_time", "error", "job_detail"}


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
      code: HTTP status.
      message: Error message, in the real service's words.
      status: Name of the gRPC code. Default: the usual one for the HTTP status.
    """

    def __init__(self, code: int, message: str, status: str = ""):
        super().__init__(message)
        self.code = code
        self.document = {"error": {"code": code, "message": message, "status": status or _CODES[code]}}


@dataclass
class Request:
    """A request to the service.

    Attributes:
      verb: Resource and action, such as `customJobs.create`; empty for an unknown path.
      method: HTTP method.
      path: Path, without the query.
      query: The query.
      message: Resource to create.
    """

    verb: str
    method: str
    path: str
    query: dict[str, str]
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
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "VertexApi":
        self.pools.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.pools.__exit__(*error)

    @property
    def url(self) -> str:
        """Returns the service's address: the `api_endpoint` of the SDK."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def parent(self) -> str:
        """Returns the beginning of all names."""
        return f"projects/{self.number}/locations/{self.location}"

    @contextlib.contextmanager
    def connected(self, wait_seconds: float = 0.05) -> Iterator[None]:
        """Connects the SDK of this process to the fake, within the block.

        `aiplatform.init` without an endpoint, transport or credentials keeps these. The
        SDK looks for a pipeline's bucket before it submits the pipeline, also here. It
        polls a job every `wait_seconds` seconds instead of every five, and asks for the
        project's number here; nothing else in the SDK is changed.
        """
        from google.cloud import aiplatform, resourcemanager
        from google.cloud.aiplatform.utils import resource_manager_utils

        config = aiplatform.initializer.global_config
        before = dict(vars(config))
        variables = {"STORAGE_EMULATOR_HOST": self.url, "no_proxy": "127.0.0.1"}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, variables))
            for module in (aiplatform.jobs, aiplatform.pipeline_jobs):
                stack.enter_context(mock.patch.object(module, "_JOB_WAIT_TIME", wait_seconds))
            projects = functools.partial(
                resourcemanager.ProjectsClient, transport="rest", client_options={"api_endpoint": self.url}
            )
            named = mock.Mock(wraps=resourcemanager, ProjectsClient=projects)
            stack.enter_context(mock.patch.object(resource_manager_utils, "resourcemanager", named))
            stack.callback(vars(config).update, before)
            aiplatform.init(
                project=self.project,
                location=self.location,
                api_endpoint=self.url,
                api_transport="rest",
                credentials=AnonymousCredentials(),
            )
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

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Document:
        """Answers a request.

        Raises:
          ApiError: The answer is an error.
          ConnectionAbortedError: There is no answer.
        """
        bucket = re.fullmatch(r"/storage/v1/b/([^/]+)", path)
        if method == "GET" and bucket:
            return {"kind": "storage#bucket", "name": bucket[1], "projectNumber": self.number}
        if method == "GET" and path == f"/v3/projects/{self.project}":
            return {"name": f"projects/{self.number}", "projectId": self.project, "state": "ACTIVE"}
        project, location, kind, ident, action = match.groups() if (match := _PATH.fullmatch(path)) else [""] * 5
        verb = _VERBS.get((method, bool(ident), action), "")
        request = Request(f"{kind}.{verb}" if match and verb else "", method, path, query)
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
            return self._create(kind, copy.deepcopy(request.message), request.query)
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

    def _create(self, kind: str, message: Any, query: dict[str, str]) -> Any:
        ident = str(next(self._ids))
        plan: list[_Change] | None = None
        fields = type(message).pb(message)
        for output in _OUTPUT_ONLY & set(fields.DESCRIPTOR.fields_by_name):
            fields.ClearField(output)
        if kind == "customJobs":
            _refuse(custom_job_errors(message, self.location))
            message.state, plan = types.JobState.JOB_STATE_QUEUED, self._take_plan("JOB_STATE_")
        elif kind == "pipelineJobs":
            ident = query.get("pipelineJobId", f"pipeline-{ident}")
            _refuse(pipeline_job_errors(message, self.location))
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
        selects = _selector(query.get("filter", ""))
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


def _selector(text: str) -> Callable[[Any], bool]:
    """Returns a test for a filter.

    A filter has terms on labels, state, display_name and schedule_name, joined by AND.
    """
    terms = []
    for part in re.split(r"\s+AND\s+", text.strip()) if text.strip() else []:
        match = _TERM.fullmatch(part)
        key = re.sub(r"(?<!^)([A-Z])", r"_\1", match[1]).lower() if match and not match[1].startswith("labels.") else ""
        if not match or (key and (key not in ("state", "display_name", "schedule_name") or match[2] == ":")):
            raise ApiError(400, f"Invalid filter: {text}")
        terms.append((key or match[1], match[2], match[4] if match[3] is None else match[3]))

    def selects(resource: Any) -> bool:
        for key, operator, operand in terms:
            if key.startswith("labels."):
                value = resource.labels.get(key.removeprefix("labels."))
            else:
                value = resource.state.name if key == "state" else getattr(resource, key, None)
            if operator == ":":
                matches = value is not None and operand in ("*", value)
            else:
                matches = (value == operand) == (operator == "=")
            if not matches:
                return False
        return True

    return selects


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # closing the server waits for them

    def __init__(self, api: VertexApi):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return time.monotonic() >= self.api.reachable_at

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # an OSError means that the client has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request per connection, so that no thread keeps waiting."""

    timeout = 30
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            answer, code = self.server.api.answer(self.command, url.path, dict(parse_qsl(url.query)), body), 200
        except ConnectionAbortedError:
            return
        except ApiError as error:
            answer, code = error.document, error.code
        except Exception as error:
            self._send(500, ApiError(500, f"the fake failed: {error!r}").document)
            raise
        self._send(code, answer)

    do_POST = do_DELETE = do_GET  # noqa: N815

    def _send(self, code: int, answer: Document) -> None:
        content = json.dumps(answer).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
