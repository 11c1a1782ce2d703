"""Imitates the API server of Kubeflow Pipelines for submitting and following runs.

It stores, lists and fails on request: documents are those of 2.17, as `kfp.Client` asks
for them over HTTP. Uploads are served separately, and their errors have another format.
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

import yaml
from google.protobuf import json_format
from http_api import Request, Server
from kfp.pipeline_spec import pipeline_spec_pb2

Document = dict[str, Any]

SERVICE_ACCOUNT = "pipeline-runner"  # default of runs
PREFIX = "/apis/v2beta1/"
LOGIN_PAGE = "<!doctype html><title>Log in to Kubeflow</title>"


class ApiError(Exception):
    """A refused request: its HTTP status, and the server's message."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Package:
    """A version of a pipeline; `text` is its file, `spec` the PipelineSpec in it."""

    pipeline: str
    version: str
    text: str
    spec: Document
    pipeline_id: str
    version_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def document(self) -> Document:
        """Returns the server's document of the version."""
        ids = {"pipeline_id": self.pipeline_id, "pipeline_version_id": self.version_id, "created_at": _now()}
        return {**ids, "name": self.version, "display_name": self.version, "pipeline_spec": self.spec}


@dataclass
class Run:
    """A run.

    Attributes:
      reference: Ids of the pipeline and its version; empty for a run of a file.
      runtime_config: Values of its parameters and its pipeline_root.
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
        tasks = [self._task(name, state) for name, state in self._nodes()] if self.tasks else []
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

    def _nodes(self) -> list[tuple[str, str]]:
        """Returns name and state of every node of the workflow.

        There are more nodes than steps: all executors have the same name, each node has
        another one for each try, and launchers report steps without a name.
        """
        nodes = [(self._workflow, self.state), ("root", self.state), ("root-driver", "SUCCEEDED")]
        for name, state in self.tasks.items():
            nodes += [(name, state), (f"{name}-driver", "SUCCEEDED"), ("executor", state), ("", "")]
        return [*nodes, *((f"{name}(0)", state) for name, state in nodes if name)]

    @property
    def _workflow(self) -> str:
        return f"{self.package.spec['pipelineInfo']['name']}-{self.run_id[-5:]}"

    def _task(self, name: str, state: str) -> Document:
        task = {"run_id": self.run_id, "task_id": str(uuid.uuid4()), "create_time": _now(), "start_time": _now()}
        pods = [{"pod_name": f"{self._workflow}-1"}]
        return {**task, "display_name": name, "state": state, "child_tasks": pods} if name else task


class KfpApi:
    """The server on a free loopback port, as a context manager.

    Args:
      multi_user: Whether each user has a namespace, as in a full Kubeflow.

    Attributes:
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
        self.packages: list[Package] = []
        self.runs: dict[str, Run] = {}
        self.recurring_runs: dict[str, Document] = {}
        self.pipelines: list[Document] = []
        self.experiments: list[Document] = [] if multi_user else [_experiment("Default")]
        self.require_token: str | None = None
        self.login_page = False
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.reachable_at = 0.0  # always
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
        with self._lock:
            run = self.runs[run_id]
            run.state, run.error = state, error
            run.tasks.update(tasks or {})

    def add_run(self, run_id: str, text: str) -> None:
        """Adds a run of a pipeline that was not uploaded."""
        spec = read_package(text)
        name, experiment = spec["pipelineInfo"]["name"], self.experiments[0]
        package, place = Package(name, name, text, spec, name), (experiment["display_name"], experiment["experiment_id"])
        with self._lock:
            self.runs[run_id] = Run(run_id, name, package, {"pipeline_id": name}, {}, *place, SERVICE_ACCOUNT, "RUNNING")

    def fail(self, code: int, times: int = 1) -> None:
        """Makes the next requests fail with an error."""
        with self._lock:
            self._faults += [code] * times

    def silent(self, seconds: float) -> None:
        """Accepts requests for some seconds but never answers: connections are lost."""
        self._answers_at = time.monotonic() + seconds

    # Handlers of requests.

    def respond(self, request: Request) -> tuple[int, Document | str]:
        """Answers a request with a status and a document or a page; see `answer`."""
        try:
            return 200, self.answer(request.method, request.path, request.query, request.headers, request.body)
        except ApiError as error:
            return error.code, {"error_message" if "/pipelines/upload" in request.path else "message": str(error)}

    def answer(
        self, method: str, path: str, query: dict[str, str], headers: Mapping[str, str], body: bytes
    ) -> Document | str:
        """Returns a document or a page, or refuses a request with an ApiError."""
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
                    versions = [each.document() for each in self.packages if each.pipeline_id == pipeline_id]
                    return {"pipeline_versions": versions, "total_size": len(versions)}
                case "GET", ["experiments"]:
                    return _listed("experiments", self.experiments, namespace, query)
                case "POST", ["experiments"]:
                    return self._create_experiment(json.loads(body))
                case "POST", ["runs"]:
                    return self._create_run(json.loads(body))
                case "GET", ["runs"]:
                    latest = [run.document() for run in reversed(self.runs.values())]
                    return _page("runs", [{**run, "run_details": None} for run in latest], query)
                case "GET", ["runs", run_id]:
                    return self._run(run_id).document()
                case "POST", ["runs", action] if action.endswith(":terminate"):
                    self._run(action.removesuffix(":terminate")).state = "CANCELING"
                    return {}
                case "POST", ["recurringruns"]:
                    return self._create_recurring_run(json.loads(body))
                case "GET", ["recurringruns"]:
                    return _page("recurringRuns", list(reversed(self.recurring_runs.values())), query)
                case _, ["recurringruns", name]:
                    ident, _, action = name.partition(":")
                    if ident not in self.recurring_runs:
                        raise ApiError(404, f"Job {ident} not found")
                    if (method, action) == ("DELETE", ""):
                        del self.recurring_runs[ident]
                        return {}
                    if method == "POST" and action in ("enable", "disable"):
                        self.recurring_runs[ident]["status"] = f"{action.upper()}D"
                        return {}
        raise ApiError(404, "Not Found")

    def _run(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise ApiError(404, f"Run {run_id} not found")
        return self.runs[run_id]

    def _create_recurring_run(self, body: Document) -> Document:
        document = {"recurring_run_id": str(uuid.uuid4()), **body, "status": "ENABLED", "created_at": _now()}
        self.recurring_runs[document["recurring_run_id"]] = document
        return document

    def _upload(self, query: dict[str, str], namespace: str, text: str) -> Document:
        name, spec = query["name"], read_package(text)
        pipeline = {"pipeline_id": str(uuid.uuid4()), "name": name, "display_name": name, "created_at": _now()}
        self.pipelines.append({**pipeline, **({"namespace": namespace} if namespace else {})})
        self.packages.append(Package(name, name, text, spec, pipeline["pipeline_id"]))
        return self.pipelines[-1]

    def _upload_version(self, query: dict[str, str], text: str) -> Document:
        (pipeline,) = (known for known in self.pipelines if known["pipeline_id"] == query["pipelineid"])
        self.packages.append(Package(pipeline["name"], query["name"], text, read_package(text), query["pipelineid"]))
        return self.packages[-1].document()

    def _create_experiment(self, body: Document) -> Document:
        self.experiments.append(_experiment(body["display_name"], body.get("namespace", "") if self.multi_user else ""))
        return self.experiments[-1]

    def _create_run(self, body: Document) -> Document:
        (experiment,) = (known for known in self.experiments if known["experiment_id"] == body["experiment_id"])
        reference = body["pipeline_version_reference"]
        (package,) = (known for known in self.packages if known.version_id == reference["pipeline_version_id"])
        run = Run(
            run_id=str(uuid.uuid4()),
            display_name=body["display_name"],
            package=package,
            reference=reference,
            runtime_config=body.get("runtime_config") or {},
            experiment=experiment["display_name"],
            experiment_id=experiment["experiment_id"],
            service_account=body.get("service_account") or SERVICE_ACCOUNT,
        )
        self.runs[run.run_id] = run
        return run.document()


def read_package(text: str) -> Document:
    """Returns the PipelineSpec of a compiled pipeline, or raises an ApiError."""
    try:
        spec, *others = yaml.safe_load_all(text)
        json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
        for other in others:
            json_format.ParseDict(other, pipeline_spec_pb2.PlatformSpec())
    except (yaml.YAMLError, json_format.ParseError, AttributeError, TypeError) as error:
        raise ApiError(400, "unknown template format") from error
    return dict(spec)


def _uploaded_file(headers: Mapping[str, str], body: bytes) -> str:
    """Returns the text of the file in a form."""
    head = f"Content-Type: {headers.get('Content-Type')}\r\n\r\n".encode()
    parts = email.message_from_bytes(head + body, policy=policy.HTTP).iter_parts()
    (text,) = (
        part.get_payload(decode=True).decode()
        for part in parts
        if part.get_param("name", header="content-disposition") == "uploadfile"
    )
    return text


def _listed(kind: str, documents: list[Document], namespace: str, query: dict[str, str]) -> Document:
    """Returns the documents of a namespace that match a filter; empty if none match."""
    matching = [document for document in documents if document.get("namespace", "") == namespace]
    for predicate in json.loads(query.get("filter") or "{}").get("predicates", []):
        wanted = predicate.get("stringValue", predicate.get("string_value"))
        matching = [document for document in matching if document.get(predicate["key"], document["display_name"]) == wanted]
    return {kind: matching, "total_size": len(matching)} if matching else {}


def _page(kind: str, documents: list[Document], query: dict[str, str]) -> Document:
    """Returns a page of documents, and the token of the next one."""
    start, size = int(query.get("page_token") or 0), int(query.get("page_size") or 20)
    token = {"next_page_token": str(start + size)} if len(documents) > start + size else {}
    return {kind: documents[start : start + size], "total_size": len(documents), **token}


def _experiment(name: str, namespace: str = "") -> Document:
    document = {"experiment_id": str(uuid.uuid4()), "display_name": name, "created_at": _now(), "storage_state": "AVAILABLE"}
    return {**document, "namespace": namespace} if namespace else document


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
