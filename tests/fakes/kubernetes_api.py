"""Serves the parts of the Kubernetes API with which a launcher follows a TFJob.

It answers over HTTP, in the real server's words, so that the `kubernetes` client is
tested too.
"""

import copy
import json
import re
import threading
import time
import uuid
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any

from http_api import Request, Server

Document = dict[str, Any]

_KINDS = {
    "tfjobs": ("kubeflow.org", "kubeflow.org/v1", "TFJob"),
    "pods": ("", "v1", "Pod"),
    "events": ("", "v1", "Event"),
}
_PATH = re.compile(r"/(?:api/v1|apis/kubeflow\.org/v1)/namespaces/([^/]+)/(tfjobs|pods|events)(?:/([^/]+)(/log)?)?")
_REASONS = {409: "AlreadyExists"}


class ApiError(Exception):
    """A request that is answered with a Kubernetes `Status`.

    Args:
      code: HTTP status.
      message: Error message, in the real server's words.
      resource: Resource that the request was for.
      name: Name of the object, if the request was for one.
    """

    def __init__(self, code: int, message: str, resource: str, name: str | None):
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, HTTPStatus(code).phrase.replace(" ", "")),
            "details": {"name": name, "group": _KINDS[resource][0], "kind": resource},
            "code": code,
        }


def now() -> str:
    """Returns the current time as Kubernetes writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiServer:
    """A Kubernetes API server on a free port of loopback. A context manager.

    Args:
      allowed: What RBAC rules allow: (group, resource, verb), such as
        ("", "pods/log", "get").

    Attributes:
      installed: True if the cluster has the resource of TFJobs.
      logs: Namespace and name of a pod -> file of its output: lines, each with its time
        and a space in front.
      reachable_at: Until this time, as of `time.monotonic`, connections are closed.
    """

    def __init__(self, allowed: set[tuple[str, str, str]]):
        self.allowed = allowed
        self.installed = True
        self.logs: dict[tuple[str, str], Path] = {}
        self.reachable_at = 0.0
        self._objects: dict[tuple[str, str, str], Document] = {}  # (resource, namespace, name) -> object
        self._lock = threading.RLock()
        self._faults: list[tuple[int, str | None, str]] = []
        self._server = Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def write_kubeconfig(self, file: Path, namespace: str) -> None:
        """Writes a kubeconfig that leads clients to this server."""
        context = {"cluster": "it", "user": "it", "namespace": namespace}
        cluster = {"server": f"http://127.0.0.1:{self._server.server_port}"}
        entries: Document = {"clusters": {"cluster": cluster}, "users": {"user": {}}, "contexts": {"context": context}}
        config = {kind: [{"name": "it", **entry}] for kind, entry in entries.items()}
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "it", **config}
        file.write_text(json.dumps(document), encoding="utf-8")

    # Faults of the server.

    def fail(self, code: int, times: int = 1, verb: str | None = None, message: str = "") -> None:
        """Answers the next requests, or the next ones of a verb, with an error.

        A 404 is that of a path that is not served, as while a custom resource's
        definition is being replaced.
        """
        with self._lock:
            self._faults += [(code, verb, message or HTTPStatus(code).phrase)] * times

    def unreachable(self, seconds: float) -> None:
        """Closes all new connections for a while."""
        self.reachable_at = time.monotonic() + seconds

    # Objects of the cluster, passed as copies.

    def objects(self, resource: str) -> list[Document]:
        """Returns all objects of a resource."""
        with self._lock:
            return [copy.deepcopy(document) for (of, _, _), document in self._objects.items() if of == resource]

    def get(self, namespace: str, name: str, resource: str = "tfjobs") -> Document:
        """Returns an object.

        Raises:
          ApiError: There is none of that name.
        """
        with self._lock:
            if (resource, namespace, name) not in self._objects:
                raise ApiError(404, f'{_qualified(resource)} "{name}" not found', resource, name)
            return copy.deepcopy(self._objects[resource, namespace, name])

    def set_status(self, namespace: str, name: str, status: Document) -> None:
        """Replaces the status of a TFJob."""
        with self._lock:
            self._put("tfjobs", {**self.get(namespace, name), "status": status})

    def set_pod(self, namespace: str, pod: Document) -> Document:
        """Creates or replaces a pod, and returns its current state."""
        with self._lock:
            old = self._objects.get(("pods", namespace, pod["metadata"]["name"]), {}).get("metadata", {})
            fixed = {"uid": old.get("uid") or str(uuid.uuid4()), "creationTimestamp": old.get("creationTimestamp") or now()}
            return self._put("pods", {**pod, "metadata": {**pod["metadata"], "namespace": namespace, **fixed}})

    def add_event(self, about: Document, reason: str, message: str, at: str = "") -> None:
        """Writes a warning about an object.

        Args:
          about: The object.
          reason: Short name of what happened.
          message: What happened.
          at: When it happened, as Kubernetes writes it; by default, now.
        """
        meta, at = about["metadata"], at or now()
        metadata = {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]}
        event = {
            "metadata": {**metadata, "uid": str(uuid.uuid4()), "creationTimestamp": at},
            "involvedObject": {"kind": about["kind"], "name": meta["name"], "uid": meta["uid"]},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "firstTimestamp": at,
            "lastTimestamp": at,
        }
        with self._lock:
            self._put("events", event)

    def delete(self, namespace: str, name: str, resource: str = "tfjobs") -> Document:
        """Deletes an object and, as garbage collection does, everything that it owns.

        Returns:
          The object's last state.
        """
        with self._lock:
            document = self.get(namespace, name, resource)
            del self._objects[resource, namespace, name]
            self.logs.pop((namespace, name), None)
            self.delete_owner(document["metadata"]["uid"])
            return document

    def delete_owner(self, uid: str) -> None:
        """Deletes all objects of an owner, as garbage collection does without it."""
        with self._lock:
            for (resource, namespace, name), document in list(self._objects.items()):
                if uid in [owner["uid"] for owner in document["metadata"].get("ownerReferences", ())]:
                    self.delete(namespace, name, resource)

    def _put(self, resource: str, document: Document) -> Document:
        key = (resource, document["metadata"]["namespace"], document["metadata"]["name"])
        self._objects[key] = copy.deepcopy(document)
        return document

    # Requests to the server.

    def respond(self, request: Request) -> tuple[int, Document | str]:
        """Answers a request."""
        match = _PATH.fullmatch(request.path)
        if not match or not (self.installed or match[2] != "tfjobs"):
            return 404, "404 page not found\n"
        try:
            with self._lock:
                return self._answer(request, *match.groups())
        except ApiError as error:
            return error.code, error.status

    def _answer(
        self, request: Request, namespace: str, resource: str, name: str | None, log: str | None
    ) -> tuple[int, Document | str]:
        verb = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]
        fault = next((fault for fault in self._faults if fault[1] in (None, verb)), None)
        if fault:
            self._faults.remove(fault)
            if fault[0] == HTTPStatus.NOT_FOUND:
                return 404, "404 page not found\n"
            raise ApiError(fault[0], fault[2], resource, name)
        self._authorize(verb, f"{resource}{log or ''}", resource, namespace, name)
        body = json.loads(request.body or b"{}")
        if verb == "create":
            return 201, self._create(namespace, body)
        if name is None:
            return 200, self._list(namespace, resource, request.query.get("labelSelector", ""))
        if log:
            return 200, self._read_log(namespace, name, request.query)
        if verb == "patch":
            job = self.get(namespace, name)
            return 200, self._put("tfjobs", {**job, "metadata": {**job["metadata"], **body["metadata"]}})
        return 200, (self.delete if verb == "delete" else self.get)(namespace, name, resource)

    def _authorize(self, verb: str, full: str, resource: str, namespace: str, name: str | None) -> None:
        group = _KINDS[resource][0]
        if (group, full, verb) not in self.allowed:
            target = f'{_qualified(resource)} "{name}"' if name else _qualified(resource)
            cannot = f'cannot {verb} resource "{full}" in API group "{group}" in the namespace "{namespace}"'
            user = "system:serviceaccount:kubeflow:pipeline-runner"
            raise ApiError(403, f'{target} is forbidden: User "{user}" {cannot}', resource, name)

    def _create(self, namespace: str, job: Document) -> Document:
        name = job["metadata"]["name"]
        if ("tfjobs", namespace, name) in self._objects:
            raise ApiError(409, f'tfjobs.kubeflow.org "{name}" already exists', "tfjobs", name)
        job["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
        return self._put("tfjobs", job)

    def _list(self, namespace: str, resource: str, selector: str) -> Document:
        _, api_version, kind = _KINDS[resource]
        labels = dict(each.split("=") for each in selector.split(",") if each)
        items = [
            document
            for document in self.objects(resource)
            if document["metadata"]["namespace"] == namespace
            and labels.items() <= document["metadata"].get("labels", {}).items()
        ]
        return {"apiVersion": api_version, "kind": f"{kind}List", "metadata": {}, "items": items}

    def _read_log(self, namespace: str, name: str, query: dict[str, str]) -> str:
        pod = self.get(namespace, name, "pods")
        if (namespace, name) not in self.logs or pod["status"]["phase"] == "Pending":
            raise ApiError(400, f'container in pod "{name}" is waiting to start: ContainerCreating', "pods", name)
        whole, end, _ = self.logs[namespace, name].read_text().rpartition("\n")
        lines = whole.split("\n") if end else []
        last = lines[-int(query["tailLines"]) :] if "tailLines" in query else lines
        return "".join(f"{line}\n" for line in last)


def _qualified(resource: str) -> str:
    return ".".join(filter(None, (resource, _KINDS[resource][0])))
