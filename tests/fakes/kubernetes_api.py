"""Serves the parts of the Kubernetes API that clients of TFJobs use.

It answers over HTTP, in the real server's words, so that the `kubernetes` client is
tested too. It is stricter in one respect: it refuses what the real one silently drops
or ignores (unknown fields, nulls, unknown replica types).
"""

import contextlib
import copy
import http.server
import json
import os
import re
import socket
import struct
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tfjob_admission import CRD, Document, metadata_errors, schema_errors, webhook_errors

Event = tuple[int, str, str, Document]  # version, type, resource, object


_KINDS = {
    "tfjobs": ("kubeflow.org", "kubeflow.org/v1", "TFJob"),
    "pods": ("", "v1", "Pod"),
    "events": ("", "v1", "Event"),
}
_PATH = re.compile(r"/(api/v1|apis/kubeflow\.org/v1)/namespaces/([^/]+)/(tfjobs|pods|events)(?:/([^/]+)(?:/(log|status))?)?")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MERGE_PATCH = "application/merge-patch+json"
_REASONS = {409: "AlreadyExists", 410: "Expired", 422: "Invalid", 500: "InternalError"}


class ApiError(Exception):
    """A request that is answered with a Kubernetes `Status`.

    Args:
      code: HTTP status.
      message: Error message, in the real server's words.
      resource: Resource that the request was for.
      name: Name of the object, if the request was for one.
    """

    def __init__(self, code: int, message: str, resource: str = "", name: str | None = None):
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, HTTPStatus(code).phrase.replace(" ", "")),
            "details": _details(resource, name) if resource else {},
            "code": code,
        }


def now() -> str:
    """Returns the current time as Kubernetes writes it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_owned(document: Document, uid: str) -> bool:
    """Returns True if an object names another as its owner, by the other's uid."""
    return any(reference["uid"] == uid for reference in document["metadata"].get("ownerReferences", []))


class ApiServer:
    """A Kubernetes API server on a free port of loopback. A context manager.

    Args:
      allowed: What RBAC rules allow: (group, resource, verb), such as
        ("", "pods/log", "get"). Default: everything.
      user: User of all requests.

    Attributes:
      requests: Verb and path of every request.
      checks_schema: True if TFJobs are checked against their schema, which needs its
        file.
      installed: True if the cluster has the resource of TFJobs.
      namespaces: Names of all namespaces; None if there is every namespace.
      logs: Namespace and name of a pod -> file of its output: lines, each with its time
        and a space in front.
      version: The resourceVersion of the latest change.
    """

    def __init__(
        self,
        allowed: set[tuple[str, str, str]] | None = None,
        user: str = "system:serviceaccount:kubeflow:pipeline-runner",
    ):
        self.allowed = allowed
        self.requests: list[tuple[str, str]] = []
        self.checks_schema = CRD.exists()
        self.installed = True
        self.namespaces: set[str] | None = None
        self.logs: dict[tuple[str, str], Path] = {}
        self.version = 0
        self._user = user
        self._objects: dict[tuple[str, str, str], Document] = {}  # (resource, namespace, name) -> object
        self._events: list[Event] = []
        self._oldest = 0  # oldest version from which changes can be watched
        self._changed = threading.Condition()
        self._faults: list[tuple[int, str | None]] = []
        self._drops = 0  # how many times watches were ended
        self._clean = True  # True if they were last ended as a server does
        self._closed = False
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed = True
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._cut()

    @property
    def url(self) -> str:
        """Returns the server's address: the `host` of a client's configuration."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def write_kubeconfig(self, file: Path, namespace: str = "default") -> Path:
        """Writes a kubeconfig that leads clients to this server."""
        context = {"cluster": "it", "user": "it", "namespace": namespace}
        cluster = {"server": self.url}
        entries: Document = {"clusters": {"cluster": cluster}, "users": {"user": {}}, "contexts": {"context": context}}
        config = {kind: [{"name": "it", **entry}] for kind, entry in entries.items()}
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "it", **config}
        file.write_text(json.dumps(document), encoding="utf-8")
        return file

    # Faults of the server.

    def fail(self, code: int, times: int = 1, verb: str | None = None) -> None:
        """Answers the next requests, or the next ones of a verb, with an error.

        A 404 is that of a path that is not served, as while a custom resource's
        definition is being replaced.
        """
        with self._changed:
            self._faults += [(code, verb)] * times

    def drop_watches(self, clean: bool = False) -> None:
        """Ends all watches at once.

        Ends them like a broken connection; with `clean`, like a server at their time
        limit.
        """
        with self._changed:
            self._drops, self._clean = self._drops + 1, clean
            self._changed.notify_all()

    def forget_history(self) -> None:
        """Forgets all changes, and refuses watches from an earlier version on."""
        with self._changed:
            self._oldest = self.version

    def unreachable(self, seconds: float) -> None:
        """Resets all connections, and all new ones for a while."""
        self._server.reachable_at = time.monotonic() + seconds
        self._cut()

    def _cut(self) -> None:
        self.drop_watches()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # Objects of the cluster, passed as copies.

    def objects(self, resource: str) -> list[Document]:
        """Returns all objects of a resource."""
        with self._changed:
            return [copy.deepcopy(document) for (of, _, _), document in self._objects.items() if of == resource]

    def get(self, namespace: str, name: str, resource: str = "tfjobs") -> Document:
        """Returns an object.

        Raises:
          ApiError: There is none of that name.
        """
        with self._changed:
            if (resource, namespace, name) not in self._objects:
                raise ApiError(404, f'{_qualified(resource)} "{name}" not found', resource, name)
            return copy.deepcopy(self._objects[resource, namespace, name])

    def set_status(self, namespace: str, name: str, status: Document, resource: str = "tfjobs") -> None:
        """Replaces the status of an object.

        Raises:
          ApiError: There is none of that name.
        """
        with self._changed:
            self._put(resource, {**self.get(namespace, name, resource), "status": copy.deepcopy(status)})

    def set_pod(self, namespace: str, pod: Document) -> Document:
        """Creates or replaces a pod, and returns its current state."""
        pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(pod)}
        with self._changed:
            old = self._objects.get(("pods", namespace, pod["metadata"]["name"]), {}).get("metadata", {})
            fixed = {"uid": old.get("uid") or str(uuid.uuid4()), "creationTimestamp": old.get("creationTimestamp") or now()}
            pod["metadata"] = {**pod["metadata"], "namespace": namespace, **fixed}
            return self._put("pods", pod)

    def add_event(
        self,
        about: Document,
        reason: str,
        message: str,
        kind: str = "Warning",
        component: str = "",
        at: str = "",
    ) -> None:
        """Writes an event about an object, or counts one more of the same words.

        Args:
          about: The object.
          reason: Short name of what happened.
          message: What happened.
          kind: `Warning` or `Normal`.
          component: Name of the program that reports it.
          at: When it happened, as Kubernetes writes it: in whole seconds. By default,
            now.
        """
        meta, at = about["metadata"], at or now()
        name = f"{meta['name']}.{uuid.uuid5(uuid.UUID(meta['uid']), reason + message).hex[:16]}"
        with self._changed:
            old = self._objects.get(("events", meta["namespace"], name), {})
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "uid": str(uuid.uuid4()),
                    "creationTimestamp": at,
                },
                "involvedObject": {"kind": about["kind"], "name": meta["name"], "uid": meta["uid"]},
                "reason": reason,
                "message": message,
                "type": kind,
                "source": {"component": component} if component else {},
                "firstTimestamp": old.get("firstTimestamp", at),
                "lastTimestamp": at,
                "count": old.get("count", 0) + 1,
            }
            self._put("events", event)

    def delete(self, namespace: str, name: str, resource: str = "tfjobs", foreground: bool = False) -> Document:
        """Deletes an object and, as garbage collection does, everything that it owns.

        A pod on a node stays, marked as deleted, until the node has ended and removed
        it. With `foreground` an owner also stays until everything that it owns is gone.

        Returns:
          The object's last state.
        """
        with self._changed:
            document = self.get(namespace, name, resource)
            uid = document["metadata"]["uid"]
            stays = document.get("spec", {}).get("nodeName") or (foreground and self._owned(uid))
            if not stays:
                self.remove(namespace, name, resource)
            elif "deletionTimestamp" not in document["metadata"]:
                document["metadata"]["deletionTimestamp"] = now()
                document = self._put(resource, document)
            self.delete_owner(uid)
            return document

    def remove(self, namespace: str, name: str, resource: str = "pods") -> None:
        """Removes an object, and an owner that waited for the last of its objects."""
        with self._changed:
            document = self.get(namespace, name, resource)
            del self._objects[resource, namespace, name]
            if resource == "pods":
                self.logs.pop((namespace, name), None)
            self._tell("DELETED", resource, document)
            for owner in [other for other in self._objects.values() if is_owned(document, other["metadata"]["uid"])]:
                meta = owner["metadata"]
                if "deletionTimestamp" in meta and not self._owned(meta["uid"]):
                    self.remove(meta["namespace"], meta["name"], _resource(owner))

    def delete_owner(self, uid: str) -> None:
        """Deletes all objects of an owner, as garbage collection does without it."""
        with self._changed:
            for document in self._owned(uid):
                self.delete(document["metadata"]["namespace"], document["metadata"]["name"], _resource(document))

    def _owned(self, uid: str) -> list[Document]:
        return [document for document in self._objects.values() if is_owned(document, uid)]

    def _put(self, resource: str, document: Document) -> Document:
        key = (resource, document["metadata"]["namespace"], document["metadata"]["name"])
        event = "MODIFIED" if key in self._objects else "ADDED"
        self._objects[key] = self._tell(event, resource, document)
        return copy.deepcopy(self._objects[key])

    def _tell(self, event: str, resource: str, document: Document) -> Document:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self._events.append((self.version, event, resource, document))
        self._changed.notify_all()
        return document

    # Requests to the server.

    def answer(self, method: str, path: str, query: dict[str, str], body: Document) -> Document | Iterator[bytes] | None:
        """Answers a request.

        Returns:
          A document, or a stream of bytes; None for an unknown path.

        Raises:
          ApiError: The answer is an error.
        """
        if (method, path) == ("POST", _REVIEWS):
            return self._review(body)
        match = _PATH.fullmatch(path)
        if not match or (match[1] == "api/v1") != (match[3] != "tfjobs") or not (self.installed or match[3] != "tfjobs"):
            return None
        _, namespace, resource, name, subresource = match.groups()
        reading = "get" if name else "watch" if _is_true(query, "watch") else "list"
        verb = {"GET": reading, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[method]
        with self._changed:
            self.requests.append((verb, path))
            fault = next((fault for fault in self._faults if fault[1] in (None, verb)), None)
            if fault:
                self._faults.remove(fault)
                if fault[0] == HTTPStatus.NOT_FOUND:
                    return None
                raise ApiError(fault[0], HTTPStatus(fault[0]).phrase, resource, name)
            self._authorize(verb, resource, subresource, namespace, name)
            if verb == "watch":
                return self._watch(resource, _selector(query, namespace), query)
            if verb == "list":
                items = list(filter(_selector(query, namespace), self.objects(resource)))
                _, api_version, kind = _KINDS[resource]
                meta = {"resourceVersion": str(self.version)}
                return {"apiVersion": api_version, "kind": f"{kind}List", "metadata": meta, "items": items}
            if subresource == "log":
                return self._log(self.get(namespace, name, "pods"), query)
            if verb == "get":
                return self.get(namespace, name, resource)
            if verb == "delete" and name:
                expected, uid = (
                    body.get("preconditions", {}).get("uid"),
                    self.get(namespace, name, resource)["metadata"]["uid"],
                )
                if expected not in (None, uid):
                    about = f'Operation cannot be fulfilled on {_qualified(resource)} "{name}"'
                    words = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {uid}"
                    raise ApiError(409, f"{about}: {words}", resource, name)
                policy = query.get("propagationPolicy") or body.get("propagationPolicy")
                return _deleted(self.delete(namespace, name, resource, policy == "Foreground"))
            if verb == "create" and resource == "tfjobs" and not name:
                return self._create(namespace, body, "dryRun" in query)
            if verb == "patch" and resource == "tfjobs" and name and not subresource:
                return self._patch(namespace, name, body)
        raise ApiError(405, "the server does not allow this method on the requested resource", resource)

    def _authorize(self, verb: str, resource: str, subresource: str | None, namespace: str, name: str | None) -> None:
        group, full = _KINDS[resource][0], f"{resource}/{subresource}" if subresource else resource
        if self.allowed is not None and (group, full, verb) not in self.allowed:
            target = f'{_qualified(resource)} "{name}"' if name else _qualified(resource)
            cannot = f'cannot {verb} resource "{full}" in API group "{group}" in the namespace "{namespace}"'
            raise ApiError(403, f'{target} is forbidden: User "{self._user}" {cannot}', resource, name)

    def _review(self, body: Document) -> Document:
        asked = body["spec"]["resourceAttributes"]
        full = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        allowed = self.allowed is None or (asked.get("group", ""), full, asked["verb"]) in self.allowed
        return {**body, "status": {"allowed": allowed}}

    def _create(self, namespace: str, body: Document, dry_run: bool) -> Document:
        if (body.get("apiVersion"), body.get("kind")) != _KINDS["tfjobs"][1:]:
            raise ApiError(400, f"the object provided is unrecognized: {body.get('apiVersion')}, {body.get('kind')}")
        job = {key: value for key, value in body.items() if key != "status"}
        meta = job.setdefault("metadata", {})
        if meta.setdefault("namespace", namespace) != namespace:
            raise ApiError(400, "the namespace of the provided object does not match the namespace sent on the request")
        if self.namespaces is not None and namespace not in self.namespaces:
            raise ApiError(404, f'namespaces "{namespace}" not found', "namespaces", namespace)
        name = meta.get("name", "")
        self._check(job, [])
        if ("tfjobs", namespace, name) in self._objects:
            raise ApiError(409, f'tfjobs.kubeflow.org "{name}" already exists', "tfjobs", name)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        return job if dry_run else self._put("tfjobs", job)

    def _patch(self, namespace: str, name: str, body: Document) -> Document:
        """Applies a merge patch, which leaves the status of a TFJob unchanged."""
        old = self.get(namespace, name)
        job = {key: value for key, value in _merged(old, body).items() if key != "status"}
        job |= {key: value for key, value in old.items() if key == "status"}
        fixed = ("name", "namespace", "uid", "creationTimestamp")
        changed = [key for key in fixed if job["metadata"].get(key) != old["metadata"][key]]
        self._check(job, [f"metadata.{key}: Invalid value: field is immutable" for key in changed])
        job["metadata"]["generation"] = old["metadata"]["generation"] + (job["spec"] != old["spec"])
        return self._put("tfjobs", job)

    def _check(self, job: Document, invalid: list[str]) -> None:
        """Raises an error if a job is invalid, for these or other reasons."""
        name = job["metadata"].get("name", "")
        invalid = [*invalid, *metadata_errors(job["metadata"]), *(schema_errors(job) if self.checks_schema else [])]
        if invalid:
            raise ApiError(422, f'TFJob.kubeflow.org "{name}" is invalid: {_aggregate(invalid)}', "tfjobs", name)
        denied = webhook_errors(job)
        if denied:
            webhook = "validator.tfjob.training-operator.kubeflow.org"
            raise ApiError(403, f'admission webhook "{webhook}" denied the request: {_aggregate(denied)}')

    def _watch(self, resource: str, selects: Callable[[Document], bool], query: dict[str, str]) -> Iterator[bytes]:
        since = int(query.get("resourceVersion") or 0)
        end = time.monotonic() + float(query.get("timeoutSeconds", 3600))
        with self._changed:
            drops, position = self._drops, len(self._events)
            events: list[Event] | None
            if since:
                events = [event for event in self._events if event[0] > since]
            else:  # a watch without a version begins with all objects
                events = [(self.version, "ADDED", resource, document) for document in self.objects(resource)]
            if since and since < self._oldest:
                gone = ApiError(410, f"too old resource version: {since} ({self._oldest})")
                yield _line("ERROR", gone.status)
                return
        while events is not None:
            for _, event, of, document in events:
                if of == resource and selects(document):
                    yield _line(event, document)
            events = self._events_after(position, drops, end)
            position += len(events or [])

    def _events_after(self, position: int, drops: int, end: float) -> list[Event] | None:
        """Waits for the next events; returns None when a watch has to end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > position or self._drops != drops, end - time.monotonic())
            if self._drops != drops and not self._clean:
                raise ConnectionAbortedError
            return self._events[position:] or None if self._drops == drops else None

    def _log(self, pod: Document, query: dict[str, str]) -> Iterator[bytes]:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if container not in (*names, *(each["name"] for each in pod["spec"].get("initContainers", ()))):
            raise ApiError(400, f"container {container} is not valid for pod {key[1]}")
        if "container" not in query and len(names) > 1:
            raise ApiError(400, f"a container name must be specified for pod {key[1]}, choose one of: [{' '.join(names)}]")
        if key not in self.logs or pod["status"]["phase"] == "Pending":
            raise ApiError(400, f'container "{container}" in pod "{key[1]}" is waiting to start: ContainerCreating')
        return self._printed(key, self.logs[key], query)

    def _printed(self, key: tuple[str, str], file: Path, query: dict[str, str]) -> Iterator[bytes]:
        """Yields a container's output or last lines; with `follow`, until it ends."""
        stamped, follow = _is_true(query, "timestamps"), _is_true(query, "follow")
        with file.open("rb") as opened:

            def more() -> list[bytes]:
                whole, end, rest = opened.read().rpartition(b"\n")
                opened.seek(-len(rest), os.SEEK_CUR)
                lines = whole.split(b"\n") if end else []
                return [(line if stamped else line.partition(b" ")[2]) + b"\n" for line in lines]

            lines = more()
            yield b"".join(lines[max(len(lines) - int(query.get("tailLines", len(lines))), 0) :])
            while follow and not self._closed:
                pod = self._objects.get(("pods", *key), {})
                # Read before the last of its output.
                follow = pod.get("status", {}).get("phase") == "Running" and self.logs.get(key) == file
                yield b"".join(more())
                with self._changed:
                    self._changed.wait(0.05)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: ApiServer):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.reachable_at = 0.0
        self.connections: set[socket.socket] = set()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if time.monotonic() >= self.reachable_at:
            return True
        # With a linger time of 0, a socket is closed with a reset.
        request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.close()
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # an OSError means that the client has left
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.command == "PATCH" and self.headers.get("Content-Type") != _MERGE_PATCH:
                raise ApiError(
                    415, f"the body of the request was in an unknown format - accepted media types: {_MERGE_PATCH}"
                )
            answer = self.server.api.answer(
                self.command, url.path, dict(parse_qsl(url.query)), json.loads(body or b"{}") or {}
            )
        except ApiError as error:
            self._send(error.code, error.status)
        except Exception as error:
            self._send(500, ApiError(500, f"the fake failed: {error!r}").status)
            raise
        else:
            if answer is None:
                self._send(404, "404 page not found\n")
            elif isinstance(answer, dict):
                self._send(201 if self.command == "POST" else 200, answer)
            else:
                self._stream(answer)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _send(self, code: int, answer: Document | str) -> None:
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if isinstance(answer, str) else "application/json")
        self.send_header("Content-Length", str(len(content)))
        if code == HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, parts: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for part in filter(None, parts):  # an empty one would end the stream
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True


def _merged(document: Any, patch: Any) -> Any:
    """Returns a document after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        merged[key] = _merged(merged.get(key), value)
    return {key: value for key, value in merged.items() if patch.get(key, value) is not None}


def _line(event: str, document: Document) -> bytes:
    return json.dumps({"type": event, "object": document}).encode() + b"\n"


def _deleted(document: Document) -> Document:
    """Returns the answer to a deletion: the object if it still exists, or is a pod."""
    meta, resource = document["metadata"], _resource(document)
    if resource == "pods" or "deletionTimestamp" in meta:
        return document
    details = {**_details(resource, meta["name"]), "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _details(resource: str, name: str | None) -> Document:
    """Returns the part of a `Status` that names an object, without empty values."""
    group = _KINDS[resource][0] if resource in _KINDS else ""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", resource)) if value}


def _resource(document: Document) -> str:
    return "tfjobs" if document["kind"] == "TFJob" else "pods"


def _qualified(resource: str) -> str:
    return ".".join(filter(None, (resource, _KINDS[resource][0])))


def _is_true(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _aggregate(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"


def _selector(query: dict[str, str], namespace: str) -> Callable[[Document], bool]:
    """Returns a test for the label and field selectors of a request in a namespace."""
    requirements = []
    fields = ("metadata.name", "metadata.namespace", "type")
    for kind in ("labelSelector", "fieldSelector"):
        for requirement in filter(None, query.get(kind, "").split(",")):
            match = re.fullmatch(r"([^=!]+)(!=|==?)([^=!]*)", requirement)
            if not match or (kind == "fieldSelector" and match[1] not in fields):
                raise ApiError(400, f"unable to parse requirement: {requirement}")
            requirements.append((match[1], match[2] != "!=", match[3]))

    def selects(document: Document) -> bool:
        meta = document["metadata"]
        values = {**meta.get("labels", {}), "metadata.name": meta["name"], "metadata.namespace": meta["namespace"]}
        values["type"] = document.get("type")  # of an event
        return meta["namespace"] == namespace and all(
            (values.get(key) == value) == equal for key, equal, value in requirements
        )

    return selects
