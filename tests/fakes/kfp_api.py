"""Imitates the API server of Kubeflow Pipelines for submitting and following runs.

It answers `kfp.Client` over HTTP as the sources of 2.17 do, in two formats: uploads are
served separately from the rest, and their errors have a different format.
"""

import email
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email import policy
from http import HTTPStatus
from typing import Any

import kfp_server_api
import yaml
from google.protobuf import json_format
from http_api import Request, Server
from kfp.pipeline_spec import pipeline_spec_pb2

Document = dict[str, Any]

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "SKIPPED", "FAILED", "CANCELING", "CANCELED", "PAUSED")
SERVICE_ACCOUNT = "pipeline-runner"  # default of runs
PREFIX = "/apis/v2beta1/"
LOGIN_PAGE = "<!doctype html><title>Log in to Kubeflow</title>"

_EQUALS = (1, "EQUALS")
_KINDS = {  # HTTP status: gRPC code, and its name in the server's log
    400: (3, "Invalid input error"),
    401: (16, "Unauthenticated"),
    403: (7, "PermissionDenied"),
    404: (5, "ResourceNotFoundError"),
    409: (6, "Already exist error"),
    429: (8, "ResourceExhausted"),
    500: (13, "InternalServerError"),
    503: (14, "ServiceUnavailable"),
}


class ApiError(Exception):
    """A refused request.

    Args:
      code: HTTP status.
      message: The server's message to clients.
      during: The failed operation, a prefix of the message.
    """

    def __init__(self, code: int, message: str, during: str = ""):
        super().__init__(message)
        self.code = code
        self.grpc, kind = _KINDS.get(code, (2, "Unknown"))
        self.whole = ": ".join(filter(None, (during, kind, message)))

    def document(self) -> Document:
        """Returns the answer to requests that the server's gRPC gateway translates."""
        details = [{"@type": "type.googleapis.com/google.rpc.Status", "code": self.grpc, "message": str(self)}]
        return {"error": self.whole, "code": self.grpc, "message": self.whole, "details": details}

    def upload_document(self) -> Document:
        """Returns the answer to an upload, which does not pass the gateway."""
        return {"error_message": str(self), "error_details": self.whole}


@dataclass(frozen=True)
class Package:
    """An uploaded pipeline version.

    Attributes:
      pipeline: Name of the pipeline.
      version: Name of its version.
      text: The file.
      spec: The PipelineSpec in it.
    """

    pipeline: str
    version: str
    text: str
    spec: Document


@dataclass
class Run:
    """A run.

    Attributes:
      run_id: Its id.
      display_name: Its name.
      package: What it runs.
      reference: Ids of the pipeline and its version.
      runtime_config: Values of its parameters and its pipeline_root.
      experiment: Name of its experiment.
      experiment_id: Its id.
      service_account: Service account of its pods.
      state: Its state.
      tasks: Step -> its state.
      error: The error message. The real server has one only if a run cannot be read.
      recurring_run_id: Id of the recurring run that started it; None for none.
    """

    run_id: str
    display_name: str
    package: Package
    reference: Document
    runtime_config: Document
    experiment: str
    experiment_id: str
    service_account: str
    state: str = "PENDING"
    tasks: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    recurring_run_id: str | None = None
    created_at: str = field(default_factory=lambda: _now())

    def document(self) -> Document:
        """Returns the server's document of the run, without empty fields."""
        tasks = [self._task(name, place, state) for name, place, state in self._nodes()] if self.tasks else []
        document = {
            "run_id": self.run_id,
            "experiment_id": self.experiment_id,
            "display_name": self.display_name,
            "pipeline_version_reference": self.reference,
            "runtime_config": self.runtime_config,
            "service_account": self.service_account,
            "recurring_run_id": self.recurring_run_id,
            "storage_state": "AVAILABLE",
            "state": self.state,
            "error": {"code": 13, "message": self.error} if self.error else None,
            "run_details": {"task_details": tasks} if tasks else None,
            "created_at": self.created_at,
            "finished_at": "1970-01-01T00:00:00Z",
        }
        return {name: value for name, value in document.items() if value}

    def _nodes(self) -> list[tuple[str, str, str]]:
        """Returns name, place and state of every node of the workflow.

        There are more nodes than steps: all executors have the same name, each node has
        another one for each try, and launchers report steps without a name.
        """
        nodes = [(self._workflow, "", self.state), ("root", "root", self.state), ("root-driver", "root", "SUCCEEDED")]
        for name, state in self.tasks.items():
            driver = "RUNNING" if state == "PENDING" else "SUCCEEDED"
            nodes += [(name, name, state), (f"{name}-driver", name, driver), ("executor", name, state)]
        tries = [(f"{name}(0)", place, state) for name, place, state in nodes]
        return [*nodes, *tries, *(("", name, "") for name in self.tasks)]

    @property
    def _workflow(self) -> str:
        return f"{self.package.spec['pipelineInfo']['name']}-{self.run_id[-5:]}"

    def _task(self, name: str, place: str, state: str) -> Document:
        task_id = str(uuid.uuid5(uuid.UUID(self.run_id), f"{place}/{name}"))
        task = {"run_id": self.run_id, "task_id": task_id, "create_time": _now(), "start_time": _now()}
        if not name:
            return task
        end = {} if state == "SUCCEEDED" else {"end_time": "0001-01-01T00:00:00Z"}
        pod = f"{self._workflow}-{int(task_id[:8], 16)}"
        return {**task, "display_name": name, "state": state, "child_tasks": [{"pod_name": pod}], **end}


class KfpApi:
    """The server on a free loopback port, as a context manager.

    Args:
      multi_user: Whether each user has a namespace, as in a full Kubeflow.

    Attributes:
      requests: Method and path of every request.
      packages: Uploaded packages, in order.
      runs: Id -> run.
      recurring_runs: Id -> document of a recurring run.
      experiments: Documents of all experiments.
      pipelines: Documents of all pipelines.
      require_token: Token that requests must have, as behind an authenticating proxy.
      login_page: Whether requests without the token get a login page, as in a browser.
      before: Called with method and path before each request is answered.
    """

    def __init__(self, multi_user: bool = False):
        self.multi_user = multi_user
        self.requests: list[tuple[str, str]] = []
        self.packages: list[Package] = []
        self.runs: dict[str, Run] = {}
        self.recurring_runs: dict[str, Document] = {}
        self.pipelines: list[Document] = []
        self.experiments: list[Document] = [] if multi_user else [_experiment("Default")]
        self.require_token: str | None = None
        self.login_page = False
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.reachable_at = 0.0
        self._versions: dict[str, tuple[str, Package]] = {}  # id of the version -> id of the pipeline
        self._faults: list[int] = []
        self._answers_at = 0.0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._server = Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "KfpApi":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Address of the server: the `host` of a client."""
        return f"http://127.0.0.1:{self._server.server_port}"

    # Methods that change states and cause failures.

    def set_state(self, run_id: str, state: str, tasks: Mapping[str, str] | None = None, error: str | None = None) -> None:
        """Sets the state of a run and of some of its steps."""
        for name in (state, *(tasks or {}).values()):
            if name not in STATES:
                raise ValueError(f"a run is never {name}")
        with self._lock:
            run = self.runs[run_id]
            run.state, run.error = state, error
            run.tasks.update(tasks or {})

    def add_run(self, run_id: str, text: str) -> None:
        """Adds a run of a pipeline that was not uploaded."""
        spec = read_package(text)
        name = spec["pipelineInfo"]["name"]
        package, experiment = Package(name, name, text, spec), self.experiments[0]
        place = (experiment["display_name"], experiment["experiment_id"])
        with self._lock:
            self.runs[run_id] = Run(run_id, name, package, {"pipeline_id": name}, {}, *place, SERVICE_ACCOUNT, "RUNNING")

    def fail(self, code: int, times: int = 1) -> None:
        """Makes the next requests fail with an error."""
        with self._lock:
            self._faults += [code] * times

    def unreachable(self, seconds: float) -> None:
        """Closes connections without an answer for some seconds."""
        self.reachable_at = time.monotonic() + seconds

    def silent(self, seconds: float) -> None:
        """Accepts requests for some seconds but never answers: connections are lost."""
        self._answers_at = time.monotonic() + seconds

    # Handlers of requests.

    def respond(self, request: Request) -> tuple[int, Document | str]:
        """Answers a request with a status and a document or a page.

        Raises:
          ConnectionAbortedError: The server does not answer.
        """
        try:
            return 200, self.answer(request.method, request.path, request.query, request.headers, request.body)
        except ApiError as error:
            return error.code, error.upload_document() if "/pipelines/upload" in request.path else error.document()

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> Document | str:
        """Answers a request with a document or a page.

        Raises:
          ApiError: The request is refused.
          ConnectionAbortedError: The server does not answer.
        """
        self.requests.append((method, path))
        if time.monotonic() < self._answers_at:
            self._closed.wait()
            raise ConnectionAbortedError
        self.before(method, path)
        with self._lock:
            if self._faults:
                code = self._faults.pop(0)
                raise ApiError(code, HTTPStatus(code).phrase)
            if self.require_token and headers.get("Authorization") != f"Bearer {self.require_token}":
                if self.login_page:
                    return LOGIN_PAGE
                raise ApiError(401, "Jwt is missing")
            namespace = query.get("namespace", "") if self.multi_user else ""
            match method, path.removeprefix(PREFIX).split("/"):
                case "GET", ["healthz"]:
                    return {"commit_sha": "unknown", "tag_name": "2.17.0", "multi_user": self.multi_user}
                case "GET", ["pipelines"]:
                    return _listed("pipelines", self.pipelines, namespace, query)
                case "POST", ["pipelines", "upload"]:
                    return self._upload(query, namespace, _uploaded_file(headers, body))
                case "POST", ["pipelines", "upload_version"]:
                    return self._upload_version(query, _uploaded_file(headers, body))
                case "GET", ["pipelines", pipeline_id, "versions"]:
                    self._pipeline(pipeline_id)
                    versions = [_version(key, *known) for key, known in self._versions.items() if known[0] == pipeline_id]
                    return {"pipeline_versions": versions, "total_size": len(versions)}
                case "GET", ["experiments"]:
                    if self.multi_user and not namespace:
                        raise ApiError(400, "An experiment cannot have an empty namespace in multi-user mode")
                    return _listed("experiments", self.experiments, namespace, query)
                case "POST", ["experiments"]:
                    return self._create_experiment(_fields(body, kfp_server_api.V2beta1Experiment))
                case "POST", ["runs"]:
                    return self._create_run(_fields(body, kfp_server_api.V2beta1Run))
                case "GET", ["runs"]:
                    latest = [run.document() for run in reversed(self.runs.values())]
                    return _page("runs", [{**run, "run_details": None} for run in latest], query)
                case "GET", ["runs", run_id]:
                    if run_id not in self.runs:
                        raise ApiError(404, f"Run {run_id} not found", "Failed to get a run")
                    return self.runs[run_id].document()
                case "POST", ["runs", action] if action.endswith(":terminate"):
                    run_id = action.removesuffix(":terminate")
                    if run_id not in self.runs:
                        raise ApiError(404, f"Run {run_id} not found", "Failed to terminate a run")
                    self.runs[run_id].state = "CANCELING"
                    return {}
                case "POST", ["recurringruns"]:
                    return self._create_recurring_run(_fields(body, kfp_server_api.V2beta1RecurringRun))
                case "GET", ["recurringruns"]:
                    return _page("recurringRuns", list(reversed(self.recurring_runs.values())), query)
                case _, ["recurringruns", name]:
                    ident, _, action = name.partition(":")
                    if ident not in self.recurring_runs:
                        raise ApiError(404, f"Job {ident} not found", "Failed to get a recurring run")
                    return self._change_recurring_run(ident, method, action)
        raise ApiError(404, "Not Found")

    def _create_recurring_run(self, body: Document) -> Document:
        during = "Failed to create a recurring run"
        trigger = body.get("trigger", {}).get("cron_schedule", {})
        if len(trigger.get("cron", "").split()) != 6:
            raise ApiError(400, "Schedule cron is not a supported format", during)
        if not 1 <= int(body.get("max_concurrency") or 0) <= 10:
            raise ApiError(400, "The max concurrency of the job is out of range. Support 1-10", during)
        if body.get("pipeline_version_reference", {}).get("pipeline_version_id", "") not in self._versions:
            raise ApiError(500, "Internal Server Error", during)
        document = {"recurring_run_id": str(uuid.uuid4()), **body, "status": "ENABLED", "created_at": _now()}
        self.recurring_runs[document["recurring_run_id"]] = document
        return document

    def _change_recurring_run(self, ident: str, method: str, action: str) -> Document:
        match method, action:
            case "GET", "":
                return self.recurring_runs[ident]
            case "DELETE", "":
                del self.recurring_runs[ident]
            case "POST", "enable" | "disable":
                self.recurring_runs[ident]["status"] = f"{action.upper()}D"
            case _:
                raise ApiError(404, "Not Found")
        return {}

    def _upload(self, query: dict[str, str], namespace: str, file: tuple[str, str]) -> Document:
        name = query.get("name") or file[0]
        spec = read_package(file[1])
        if any((known["name"], known.get("namespace", "")) == (name, namespace) for known in self.pipelines):
            raise ApiError(
                409, f"Failed to create a new pipeline. The name {name} already exists. Please specify a new name"
            )
        pipeline = {"pipeline_id": str(uuid.uuid4()), "name": name, "display_name": name, "created_at": _now()}
        self.pipelines.append({**pipeline, **({"namespace": namespace} if namespace else {})})
        self._add_version(pipeline["pipeline_id"], Package(name, name, file[1], spec))
        return self.pipelines[-1]

    def _upload_version(self, query: dict[str, str], file: tuple[str, str]) -> Document:
        pipeline_id, name = query.get("pipelineid", ""), query.get("name") or file[0]
        try:
            pipeline = self._pipeline(pipeline_id)
        except ApiError as error:
            raise ApiError(400, "Failed to create a pipeline version") from error
        spec = read_package(file[1])
        if any(known[0] == pipeline_id and known[1].version == name for known in self._versions.values()):
            text = f"Failed to create a new pipeline version. The name {name} already exist. Specify a new name"
            raise ApiError(409, text)
        return self._add_version(pipeline_id, Package(pipeline["name"], name, file[1], spec))

    def _add_version(self, pipeline_id: str, package: Package) -> Document:
        version_id = str(uuid.uuid4())
        self._versions[version_id] = (pipeline_id, package)
        self.packages.append(package)
        return _version(version_id, pipeline_id, package)

    def _pipeline(self, pipeline_id: str) -> Document:
        matching = [pipeline for pipeline in self.pipelines if pipeline["pipeline_id"] == pipeline_id]
        if not matching:
            raise ApiError(404, f"Pipeline {pipeline_id} not found", "Failed to get a pipeline")
        return matching[0]

    def _create_experiment(self, body: Document) -> Document:
        name, namespace = body.get("display_name", ""), body.get("namespace", "") if self.multi_user else ""
        during = "Failed to create a experiment"
        if not name:
            raise ApiError(400, "Experiment must have a non-empty name", during)
        if self.multi_user and not namespace:
            raise ApiError(400, "An experiment cannot have an empty namespace in multi-user mode", during)
        if any((known["display_name"], known.get("namespace", "")) == (name, namespace) for known in self.experiments):
            text = f"Failed to create a new experiment. The name {name} already exists. Please specify a new name"
            raise ApiError(409, text, during)
        self.experiments.append(_experiment(name, namespace))
        return self.experiments[-1]

    def _create_run(self, body: Document) -> Document:
        during = "Failed to create a new run"
        if not body.get("display_name"):
            raise ApiError(400, "The run name is empty. Please specify a valid name", during)
        experiment = [known for known in self.experiments if known["experiment_id"] == body.get("experiment_id")]
        if not experiment:
            raise ApiError(404, f"Experiment {body.get('experiment_id')} not found", during)
        reference = body.get("pipeline_version_reference") or {}
        pipeline_id, package = self._versions.get(reference.get("pipeline_version_id", ""), ("", None))
        if package is None or reference.get("pipeline_id") != pipeline_id:
            # Not 404: the server treats every failure here as an internal error.
            raise ApiError(500, "Internal Server Error", f"{during}: Failed to create a run due to error fetching manifest")
        run = Run(
            run_id=str(uuid.uuid4()),
            display_name=body["display_name"],
            package=package,
            reference=reference,
            runtime_config=body.get("runtime_config") or {},
            experiment=experiment[0]["display_name"],
            experiment_id=experiment[0]["experiment_id"],
            service_account=body.get("service_account") or SERVICE_ACCOUNT,
        )
        self.runs[run.run_id] = run
        return run.document()


def read_package(text: str) -> Document:
    """Reads a compiled pipeline.

    Returns:
      Its PipelineSpec.

    Raises:
      ApiError: It is not a PipelineSpec, with or without a platform spec.
    """
    try:
        spec, *others = yaml.safe_load_all(text)
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        for other in others:
            json_format.ParseDict(other, pipeline_spec_pb2.PlatformSpec())
    except (yaml.YAMLError, json_format.ParseError, AttributeError, TypeError) as error:
        raise ApiError(400, "unknown template format") from error
    return dict(spec)


def _uploaded_file(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Returns name and text of the file in a form."""
    head = f"Content-Type: {headers.get('Content-Type')}\r\n\r\n".encode()
    form = email.message_from_bytes(head + body, policy=policy.HTTP)
    for part in form.iter_parts() if form.is_multipart() else []:
        if part.get_param("name", header="content-disposition") == "uploadfile":
            name = part.get_filename() or ""
            if not name.endswith((".yaml", ".yml", ".json")):
                raise ApiError(400, "Failed to read a pipeline spec file")
            return name, part.get_payload(decode=True).decode()
    raise ApiError(400, "Failed to read pipeline from file")


def _fields(body: bytes, kind: Any) -> Document:
    """Parses a document, and refuses unknown fields."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"invalid character in JSON: {error}") from error
    unknown = set(document) - set(kind.attribute_map.values())
    if unknown:
        raise ApiError(400, f'unknown field "{unknown.pop()}"')
    return document


def _listed(kind: str, documents: list[Document], namespace: str, query: dict[str, str]) -> Document:
    """Returns the documents of a namespace that match a filter; empty if none match."""
    predicates = json.loads(query.get("filter") or "{}").get("predicates", [])
    matching = [document for document in documents if document.get("namespace", "") == namespace]
    for predicate in predicates:
        key = predicate.get("key")
        if key not in ("name", "display_name"):
            raise ApiError(400, f'no support for filtering on unrecognized field "{key}"')
        if predicate.get("operation") not in _EQUALS:
            raise ApiError(400, f"invalid predicate operation: {predicate.get('operation')}")
        wanted = predicate.get("stringValue", predicate.get("string_value"))
        matching = [document for document in matching if document.get(key, document["display_name"]) == wanted]
    return {kind: matching, "total_size": len(matching)} if matching else {}


def _page(kind: str, documents: list[Document], query: dict[str, str]) -> Document:
    """Returns a page of documents, and the token of the next one."""
    start, size = int(query.get("page_token") or 0), int(query.get("page_size") or 20)
    token = {"next_page_token": str(start + size)} if len(documents) > start + size else {}
    return {kind: documents[start : start + size], "total_size": len(documents), **token}


def _experiment(name: str, namespace: str = "") -> Document:
    document = {"experiment_id": str(uuid.uuid4()), "display_name": name, "created_at": _now(), "storage_state": "AVAILABLE"}
    return {**document, "namespace": namespace} if namespace else document


def _version(version_id: str, pipeline_id: str, package: Package) -> Document:
    document = {"pipeline_id": pipeline_id, "pipeline_version_id": version_id, "created_at": _now()}
    return {**document, "name": package.version, "display_name": package.version, "pipeline_spec": package.spec}


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
