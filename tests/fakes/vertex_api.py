"""A stand-in for the Vertex AI service: custom jobs, pipeline jobs and schedules are created, followed and cancelled.

It answers the SDK over REST, in the words of the real one. Custom jobs are run, pipeline jobs are not: their states follow
what a test plans. Names in its answers have the project's number, whatever the request had. Where documents are silent it is
strict: a job that has ended is not cancelled, and one that has not is not deleted.
"""

import contextlib
import copy
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
_VERBS = {  # method, whether one resource is named, action
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
      message: What went wrong, in the real service's words.
      status: Name of the code of gRPC; default: the usual one of the HTTP status.
    """

    def __init__(self, code: int, message: str, status: str = ""):
        super().__init__(message)
        self.code = code
        self.document = {"error": {"code": code, "message": message, "status": status or _CODES[code]}}


@dataclass
class Request:
    """What was asked.

    Attributes:
      verb: What for: `customJobs.create`, or empty where nothing is served.
      method: HTTP method.
      path: Path, without the query.
      query: The query.
      message: What was to be created.
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
      name: Its name.
      state: How it is: the name of a `PipelineTaskDetail.State`.
      error: What went wrong.
      custom_job: Name of the custom job that it runs as.
    """

    name: str
    state: str = "SUCCEEDED"
    error: str = ""
    custom_job: str = ""

    def detail(self, number: int) -> types.PipelineTaskDetail:
        """It as the service has it."""
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


@dataclass(frozen=True)
class _Fault:
    code: int  # 0: the connection is dropped
    message: str
    verb: str | None
    after: bool = False  # whether what is asked is done first


class VertexApi:
    """The service, on a free port of loopback. A context manager.

    Args:
      folder: For what replicas print.
      options: How custom jobs are run.
      project: The one project that there is.
      number: Its number, which is as good as its name.
      location: The one location.

    Attributes:
      requests: All requests.
      pools: What runs custom jobs.
    """

    def __init__(
        self,
        folder: Path,
        options: Options | None = None,
        project: str = "project",
        number: str = "123456789012",
        location: str = "us-central1",
    ):
        self.project, self.number, self.location = project, number, location
        self.requests: list[Request] = []
        self._lock = threading.RLock()
        self.pools = Pools(folder, self._lock, self._report, options or Options())
        self._folder = folder
        self._resources: dict[str, Any] = {}  # by the name's last two parts
        self._plans: list[list[_Change]] = []  # for jobs that are not created yet
        self._planned: dict[str, list[_Change]] = {}
        self._ids = itertools.count(5_000_000_000_000_000_001)
        self._faults: list[_Fault] = []
        self._outage = (0.0, 0)  # until when all requests are answered with this code
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
        """Where it listens: the `api_endpoint` of the SDK."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def parent(self) -> str:
        """What all names begin with."""
        return f"projects/{self.number}/locations/{self.location}"

    @contextlib.contextmanager
    def connected(self, wait_seconds: float = 0.05) -> Iterator[None]:
        """Leads the SDK of this process here, and back after.

        `aiplatform.init` without an endpoint, transport or credentials keeps those that this gives it. The SDK looks for a
        pipeline's bucket before it submits the pipeline, which it does here too. Between two looks at a job it waits for so
        many seconds, and not for five; nothing else of it is changed.
        """
        from google.cloud import aiplatform

        config = aiplatform.initializer.global_config
        before = dict(vars(config))
        variables = {"STORAGE_EMULATOR_HOST": self.url, "no_proxy": "127.0.0.1"}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, variables))
            for module in (aiplatform.jobs, aiplatform.pipeline_jobs):
                stack.enter_context(mock.patch.object(module, "_JOB_WAIT_TIME", wait_seconds))
            stack.callback(vars(config).update, before)
            aiplatform.init(
                project=self.project,
                location=self.location,
                api_endpoint=self.url,
                api_transport="rest",
                credentials=AnonymousCredentials(),
            )
            yield

    # What befalls the service.

    def fail(self, code: int, times: int = 1, verb: str | None = None, message: str = "") -> None:
        """Answers the next requests, or the next ones of a verb such as `customJobs.create`, with an error."""
        with self._lock:
            self._faults += [_Fault(code, message, verb)] * times

    def drop(self, times: int = 1, verb: str | None = None, after: bool = False) -> None:
        """Ends the connections of the next requests without an answer; with `after` when what they ask has been done."""
        with self._lock:
            self._faults += [_Fault(0, "", verb, after)] * times

    def outage(self, seconds: float, code: int = 503) -> None:
        """Answers all requests with an error for a while."""
        with self._lock:
            self._outage = (time.monotonic() + seconds, code)

    def unreachable(self, seconds: float) -> None:
        """Ends all connections without an answer for a while."""
        self.reachable_at = time.monotonic() + seconds

    def silent(self, seconds: float) -> None:
        """Takes requests for a while that are never answered. The SDK waits for ever where it is given no timeout."""
        self._answers_at = time.monotonic() + seconds

    # What is there; names are full, and messages are given as copies.

    def plan(self, *states: str, error: str = "", tasks: Sequence[Task] = ()) -> None:
        """Has the next job that is created go through states, one each time that it is asked for; the last one stays.

        Args:
          *states: Names such as `JOB_STATE_RUNNING` or, for a pipeline job, `PIPELINE_STATE_RUNNING`.
          error: What went wrong in the last.
          tasks: Those of a pipeline job in the last.
        """
        with self._lock:
            changes = [_Change(state) for state in states[:-1]]
            self._plans.append([*changes, _Change(states[-1], error, tuple(tasks))])

    def set_state(self, name: str, state: str, error: str = "", tasks: Sequence[Task] = ()) -> None:
        """Says how a job is; what has been planned for it, and a custom job's processes, end."""
        with self._lock:
            self.pools.remove(self._find(name).name)
            self._planned[_key(name)] = []
            self._change(name, _Change(state, error, tuple(tasks)))

    def get(self, name: str) -> Any:
        """A resource.

        Raises:
          ApiError: There is none of that name.
        """
        with self._lock:
            return copy.deepcopy(self._find(name))

    def state(self, name: str) -> str:
        """The name of a job's state."""
        return str(self.get(name).state.name)

    def all(self, kind: str) -> list[Any]:
        """All `customJobs`, `pipelineJobs` or `schedules`, in the order of their creation."""
        with self._lock:
            return [copy.deepcopy(found) for key, found in self._resources.items() if key.startswith(f"{kind}/")]

    def delete(self, name: str) -> None:
        """Deletes a resource, whatever its state, and ends its processes."""
        with self._lock:
            self.pools.remove(self._find(name).name)
            del self._resources[_key(name)]

    def pids(self, name: str) -> dict[str, int]:
        """Replica -> process, of those of a custom job that run."""
        with self._lock:
            return self.pools.pids(name)

    def printed(self, name: str, replica: str = "workerpool0-0") -> str:
        """What a replica of a custom job has printed so far, all of its starts together."""
        log = self._folder / name.rpartition("/")[2] / f"{replica}.log"
        return log.read_text() if log.exists() else ""

    def _find(self, name: str) -> Any:
        if _key(name) not in self._resources:
            kind = _MESSAGES[name.split("/")[-2]].__name__
            raise ApiError(404, f"The {kind} does not exist: {name}")
        return self._resources[_key(name)]

    def _report(self, name: str, state: types.JobState, error: status_pb2.Status | None) -> None:
        job = self._find(name)
        job.state = state
        if error:
            job.error = error
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
        if error:
            code = code_pb2.FAILED_PRECONDITION if isinstance(job, types.PipelineJob) else code_pb2.INVALID_ARGUMENT
            job.error = status_pb2.Status(code=code, message=error)
        _stamp(job)

    # What is asked of the service.

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Document:
        """Answers a request.

        Raises:
          ApiError: The answer is an error.
          ConnectionAbortedError: There is no answer.
        """
        bucket = re.fullmatch(r"/storage/v1/b/([^/]+)", path)
        if method == "GET" and bucket:
            return {"kind": "storage#bucket", "name": bucket[1]}
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
        """A page of what a filter leaves, the newest first."""
        selects = _selector(query.get("filter", ""))
        found = [each for each in reversed(self.all(kind)) if selects(each)]
        start, size = int(query.get("pageToken") or 0), min(int(query.get("pageSize") or 100), 100)
        page = found[start : start + size]
        for each in page:
            if kind == "pipelineJobs" and "job_detail" in each:
                del each.job_detail  # not in lists, as its documents say
        token = {"nextPageToken": str(start + size)} if len(found) > start + size else {}
        return {kind: [_document(each, query) for each in page], **token} if page else {}


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
    found = list(errors)
    if found:
        lines = [f"{number}.Field: {field}; Message: {message}\t" for number, (field, message) in enumerate(found, 1)]
        raise ApiError(400, "List of found errors:\t" + "".join(lines))


def _denied(request: Request) -> str:
    resource = f"//aiplatform.googleapis.com{request.path.removeprefix('/v1').partition(':')[0]}"
    return f"Permission 'aiplatform.{request.verb}' denied on resource '{resource}' (or it may not exist)."


def _selector(text: str) -> Callable[[Any], bool]:
    """What a filter leaves: terms on labels, state, display_name and schedule_name, joined by AND."""
    terms = []
    for part in re.split(r"\s+AND\s+", text.strip()) if text.strip() else []:
        match = _TERM.fullmatch(part)
        key = re.sub(r"(?<!^)([A-Z])", r"_\1", match[1]).lower() if match and not match[1].startswith("labels.") else ""
        if not match or (key and (key not in ("state", "display_name", "schedule_name") or match[2] == ":")):
            raise ApiError(400, f"Invalid filter: {text}")
        terms.append((key or match[1], match[2], match[4] if match[3] is None else match[3]))

    def selects(resource: Any) -> bool:
        for key, operator, wanted in terms:
            if key.startswith("labels."):
                value = resource.labels.get(key.removeprefix("labels."))
            else:
                value = resource.state.name if key == "state" else getattr(resource, key, None)
            if operator == ":":
                matches = value is not None and wanted in ("*", value)
            else:
                matches = (value == wanted) == (operator == "=")
            if not matches:
                return False
        return True

    return selects


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # they are waited for when the server is closed

    def __init__(self, api: VertexApi):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return time.monotonic() >= self.api.reachable_at

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # which is a client that has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request a connection, so that no thread is left waiting for another."""

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
            self._send(500, ApiError(500, f"the stand-in failed: {error!r}").document)
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
