"""Runs TFJobs as Training Operator 1.9 does, with a process on loopback for each pod.

There are two parts, as in a cluster: `TrainingOperator` turns TFJobs into pods, and the
status of pods into that of TFJobs. `_Node` turns pods into processes, and the end of
processes into the status of pods. They only share the API server.

Source: https://github.com/kubeflow/training-operator/tree/release-1.9/pkg/controller.v1
"""

import contextlib
import copy
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from kubernetes_api import ApiError, ApiServer, is_owned, now
from tfjob_admission import CONTAINER, REPLICA_TYPES, Document

NODE = "loopback"
POLL_SECONDS = 0.03
LEAVE_SECONDS = 5.0  # for processes to end when the fake itself ends
LABEL = "training.kubeflow.org/"


class _RefusedError(Exception):
    """The cluster does not admit a pod."""


class TrainingOperator:
    """Runs the TFJobs of an API server. A context manager; ends all its processes.

    Four unexpected things are as in the real operator. It looks at a job only when the
    job or one of its pods has changed, so `activeDeadlineSeconds` does not end a job
    that hangs. `backoffLimit` counts restarts of containers only; `ExitCode`, which
    creates new pods instead, has no limit. A pod that is deleted while it runs fails
    its job. And if the cluster refuses a pod, only events say so: the job's status
    stays as it was.

    Args:
      api: API server with the TFJobs.
      folder: Folder for the output of pods, and with a folder `claims` for persistent
        volume claims, one folder each by the name of the claim.
      environment: Environment variables of all processes. They override those of this
        process; those of pods override them.
    """

    def __init__(self, api: ApiServer, folder: Path, environment: Mapping[str, str] | None = None):
        self._api = api
        self._node = _Node(api, folder, environment or {})
        self._seen: dict[str, list[str]] = {}  # job's uid -> versions last seen
        self._hosts: dict[str, dict[str, list[str]]] = {}  # job's uid -> addresses of its replicas
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "TrainingOperator":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._node.end()
        if self._error and not error[1]:
            raise self._error

    def _run(self) -> None:
        version = 0
        try:
            while not self._ended.is_set():
                self._node.look()
                for job in self._api.objects("tfjobs"):
                    # A client of the API server may delete it meanwhile.
                    with contextlib.suppress(ApiError):
                        self._look(job)
                self._collect_garbage()
                version = self._api.wait(version, POLL_SECONDS)
        except BaseException as error:
            self._error = error

    def _collect_garbage(self) -> None:
        """Deletes pods that were created while their job was deleted."""
        jobs = {job["metadata"]["uid"] for job in self._api.objects("tfjobs")}
        for pod in self._api.objects("pods"):
            owners = [owner["uid"] for owner in pod["metadata"].get("ownerReferences", []) if owner["kind"] == "TFJob"]
            if owners and not jobs.intersection(owners) and "deletionTimestamp" not in pod["metadata"]:
                self._api.delete(pod["metadata"]["namespace"], pod["metadata"]["name"], "pods")

    def _look(self, job: Document) -> None:
        meta, policy = job["metadata"], job["spec"].get("runPolicy") or {}
        pods = [pod for pod in self._api.objects("pods") if is_owned(pod, meta["uid"])]
        seen = [document["metadata"]["resourceVersion"] for document in (job, *pods)]
        if "deletionTimestamp" in meta or policy.get("managedBy") not in (None, "kubeflow.org/training-operator"):
            return
        status = copy.deepcopy(job.get("status") or {})
        if _finished(status) and _is_past(status.get("completionTime"), policy.get("ttlSecondsAfterFinished")):
            self._api.delete(meta["namespace"], meta["name"])
            return
        if self._seen.get(meta["uid"]) == seen:
            return
        self._seen[meta["uid"]] = seen
        if not status:
            _set_condition(status, "Created", f"TFJob {meta['name']} is created.")
        if _finished(status):
            self._clean_up(policy, status, pods)
        elif policy.get("suspend"):
            self._suspend(meta["name"], status, pods)
        else:
            try:
                self._advance(job, status, pods)
            except _RefusedError:  # it tries again, and leaves the status as it is
                self._seen.pop(meta["uid"], None)
                time.sleep(POLL_SECONDS)
                return
        if status != job.get("status"):
            self._api.set_status(meta["namespace"], meta["name"], status)

    def _clean_up(self, policy: Document, status: Document, pods: list[Document]) -> None:
        """Cleans up after a job has ended."""
        kept = {"None": pods, "All": []}.get(policy.get("cleanPodPolicy") or "None")
        if kept is None:
            kept = [pod for pod in pods if _phase(pod) not in ("Pending", "Running")]
        self._delete([pod for pod in pods if pod not in kept])
        if _is(status, "Succeeded"):
            for kind, replica in status["replicaStatuses"].items():
                succeeded = replica.get("succeeded", 0) + replica.get("active", 0)
                status["replicaStatuses"][kind] = _counts(0, succeeded, replica.get("failed", 0))

    def _suspend(self, name: str, status: Document, pods: list[Document]) -> None:
        self._delete(pods)
        for kind, replica in status.get("replicaStatuses", {}).items():
            status["replicaStatuses"][kind] = _counts(0, replica.get("succeeded", 0), replica.get("failed", 0))
        if _is(status, "Running"):
            _set_condition(status, "Running", f"TFJob {name} is suspended.", "False", "TFJobSuspended")
        _set_condition(status, "Suspended", f"TFJob {name} is suspended.")

    def _advance(self, job: Document, status: Document, pods: list[Document]) -> None:
        """Creates the pods that are missing, and looks at the others."""
        name, policy, replicas = job["metadata"]["name"], job["spec"].get("runPolicy") or {}, _replicas(job)
        if _is(status, "Suspended"):
            _set_condition(status, "Suspended", f"TFJob {name} is resumed.", "False", "TFJobResumed")
            status["startTime"] = now()
        limit = None
        if _past_backoff_limit(policy, replicas, status, pods):
            limit = "it has reached the specified backoff limit"
        elif _is_past(status.get("startTime"), policy.get("activeDeadlineSeconds")):
            limit = "it was active longer than specified deadline"
        if limit:
            self._delete(pods)
            status.setdefault("completionTime", now())
            _set_condition(status, "Failed", f"Job {name} has failed because {limit}")
            return
        for kind, replica in replicas.items():
            self._look_at_replicas(job, kind, replica, status, pods)
            # The service of a pod has its name, which must be a DNS label. With a
            # longer name the operator cannot continue.
            if any(len(_pod_name(job, kind, index)) > 63 for index in range(replica["replicas"])):
                return
        _update_status(job, status, replicas, pods)

    def _look_at_replicas(self, job: Document, kind: str, replica: Document, status: Document, pods: list[Document]) -> None:
        name, phases = job["metadata"]["name"], []
        for index in range(replica["replicas"]):
            pod = next((pod for pod in pods if pod["metadata"]["name"] == _pod_name(job, kind, index)), None)
            if pod is None:
                self._make_pod(job, kind, index)
                continue
            retryable = replica["restartPolicy"] != "ExitCode" or _exit_code(pod) >= 128
            if _phase(pod) == "Failed" and replica["restartPolicy"] != "Never":
                if retryable:
                    self._delete([pod])
                    _set_condition(status, "Restarting", f"job {name} is restarting because {kind} replica(s) failed.")
                else:
                    _set_condition(status, "Failed", f'job "{name}" is failing because "{kind}" replica(s) failed.')
            # A pod that is deleted while it runs has failed, under any restart policy.
            deleted = _phase(pod) == "Running" and "deletionTimestamp" in pod["metadata"]
            phases.append("Failed" if deleted else _phase(pod))
        counts = (phases.count(phase) for phase in ("Running", "Succeeded", "Failed"))
        status.setdefault("replicaStatuses", {})[kind] = _counts(*counts)

    def _make_pod(self, job: Document, kind: str, index: int) -> None:
        meta, replicas = job["metadata"], _replicas(job)
        pod = copy.deepcopy(replicas[kind]["template"])
        restart = replicas[kind]["restartPolicy"]
        pod["spec"] |= {"restartPolicy": "Never" if restart == "ExitCode" else restart, "nodeName": NODE}
        if sum(replica["replicas"] for replica in replicas.values()) != 1:
            container = next(container for container in pod["spec"]["containers"] if container["name"] == CONTAINER)
            tf_config = {"name": "TF_CONFIG", "value": self._tf_config(job, kind.lower(), index)}
            container["env"] = [*container.get("env", []), tf_config]
        labels = {"operator-name": "tfjob-controller", "job-name": meta["name"], "replica-type": kind.lower()}
        labels |= {"replica-index": str(index)}
        if kind in ("Chief", "Master") or (kind == "Worker" and index == 0 and not {"Chief", "Master"} & set(replicas)):
            labels["job-role"] = "master"
        owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
        template = pod.get("metadata") or {}
        pod["metadata"] = {
            **template,
            "name": _pod_name(job, kind, index),
            "labels": {**template.get("labels", {}), **{LABEL + key: value for key, value in labels.items()}},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        pod["status"] = {"phase": "Pending"}
        with contextlib.suppress(ApiError):
            self._api.get(meta["namespace"], pod["metadata"]["name"], "pods")
            self._seen.pop(meta["uid"])  # an earlier job's pod has this name: try again
            return
        if self._api.pod_refusal:
            words = f'pods "{pod["metadata"]["name"]}" is forbidden: {self._api.pod_refusal}'
            self._api.add_event(job, "FailedCreatePod", f"Error creating: {words}")
            raise _RefusedError
        self._api.set_pod(meta["namespace"], pod)

    def _tf_config(self, job: Document, role: str, index: int) -> str:
        uid = job["metadata"]["uid"]
        if uid not in self._hosts:
            counts = {kind.lower(): replica["replicas"] for kind, replica in _replicas(job).items()}
            addresses = iter(_free_addresses(sum(counts.values())))
            self._hosts[uid] = {of: [next(addresses) for _ in range(count)] for of, count in sorted(counts.items())}
        hosts = self._hosts[uid]
        document: Document = {"cluster": hosts, "task": {"type": role, "index": index}, "environment": "cloud"}
        if job["spec"].get("enableDynamicWorker"):
            servers = {"ps": [hosts["ps"][index]], "worker": hosts.get("ps", [])}.get(role, [])
            sparse = {"worker": {str(index): hosts[role][index]} if role == "worker" else {}, "ps": servers}
            document = {"cluster": sparse, "task": document["task"]}
        return json.dumps(document, separators=(",", ":"))

    def _delete(self, pods: list[Document]) -> None:
        for pod in pods:
            with contextlib.suppress(ApiError):
                self._api.delete(pod["metadata"]["namespace"], pod["metadata"]["name"], "pods")


def _update_status(job: Document, status: Document, replicas: Document, pods: list[Document]) -> None:
    """Derives the status of a job from its pods."""
    name = f"TFJob {job['metadata']['namespace']}/{job['metadata']['name']}"
    status.setdefault("startTime", now())
    restarting = _condition(status, "Restarting")
    worker_0 = next((pod for pod in pods if pod["metadata"]["name"] == _pod_name(job, "Worker", 0)), None)
    leading = [kind for kind in ("Chief", "Master") if kind in replicas]
    for kind in (kind for kind in REPLICA_TYPES if kind in replicas):
        counts = status["replicaStatuses"][kind]
        if kind in leading or (kind == "Worker" and not leading):
            succeeded = counts.get("succeeded", 0) == replicas[kind]["replicas"]
            if kind == "Worker" and worker_0 and job["spec"].get("successPolicy") != "AllWorkers":
                succeeded = succeeded or _phase(worker_0) == "Succeeded"
            if counts.get("active") and (leading or not succeeded):
                _set_condition(status, "Running", f"{name} is running.")
            if succeeded:
                status.setdefault("completionTime", now())
                _set_condition(status, "Succeeded", f"{name} successfully completed.")
        if not counts.get("failed"):
            continue
        if restarting:
            _set_condition(status, "Restarting", restarting["message"])
        elif not (kind == "Worker" and job["spec"].get("enableDynamicWorker")):
            status.setdefault("completionTime", now())
            _set_condition(status, "Failed", f"{name} has failed because {counts['failed']} {kind} replica(s) failed.")


def _past_backoff_limit(policy: Document, replicas: Document, status: Document, pods: list[Document]) -> bool:
    limit = policy.get("backoffLimit")
    if limit is None:
        return False
    failed = sum(_phase(pod) == "Failed" for pod in pods)
    known = sum(counts.get("failed", 0) for counts in status.get("replicaStatuses", {}).values())
    counted = {kind.lower() for kind, replica in replicas.items() if replica["restartPolicy"] != "Never"}
    restarts = sum(
        container["restartCount"]
        for pod in pods
        if pod["metadata"]["labels"][f"{LABEL}replica-type"] in counted and _phase(pod) == "Running"
        for container in pod["status"]["containerStatuses"]
    )
    # The operator's queue does not count its retries, so a failed pod exceeds the limit
    # only if the limit is 0.
    return restarts >= max(limit, 1) or (failed > known and limit == 0)


def _replicas(job: Document) -> Document:
    """Returns the replicas by type, with the operator's defaults."""
    names, replicas = {kind.lower(): kind for kind in REPLICA_TYPES}, job["spec"]["tfReplicaSpecs"]
    defaults = {"replicas": 1, "restartPolicy": "Never"}
    return {names.get(kind.lower(), kind): {**defaults, **replica} for kind, replica in replicas.items()}


def _pod_name(job: Document, kind: str, index: int) -> str:
    return f"{job['metadata']['name']}-{kind.lower()}-{index}"


def _counts(active: int, succeeded: int, failed: int) -> Document:
    counts = {"active": active, "succeeded": succeeded, "failed": failed}
    return {key: count for key, count in counts.items() if count}


def _phase(pod: Document) -> str:
    return str(pod["status"]["phase"])


def _exit_code(pod: Document) -> int:
    terminated = [container["state"].get("terminated") for container in pod["status"].get("containerStatuses", [])]
    return next((int(state["exitCode"]) for state in terminated if state), 0)


def _condition(status: Document, kind: str) -> Document | None:
    return next((condition for condition in status.get("conditions", []) if condition["type"] == kind), None)


def _is(status: Document, kind: str) -> bool:
    return (_condition(status, kind) or {}).get("status") == "True"


def _finished(status: Document) -> bool:
    return _is(status, "Succeeded") or _is(status, "Failed")


def _set_condition(status: Document, kind: str, message: str, value: str = "True", reason: str | None = None) -> None:
    """Sets a condition as the operator does.

    It becomes the last in the list. After a failure, no other is set.
    """
    reason = reason or f"TFJob{kind}"
    old = _condition(status, kind)
    if _is(status, "Failed") or (old and (old["status"], old["reason"]) == (value, reason)):
        return
    moved = old["lastTransitionTime"] if old and old["status"] == value else now()
    dropped = {kind, {"Running": "Restarting", "Restarting": "Running"}.get(kind)}
    conditions = [condition for condition in status.get("conditions", []) if condition["type"] not in dropped]
    if kind in ("Succeeded", "Failed"):
        conditions = [{**of, "status": "False"} if of["type"] == "Running" else of for of in conditions]
    new = {"type": kind, "status": value, "reason": reason, "message": message}
    status["conditions"] = [*conditions, {**new, "lastUpdateTime": now(), "lastTransitionTime": moved}]


def _is_past(since: str | None, seconds: float | None) -> bool:
    """Returns True if some seconds have passed since a time; False without either."""
    if since is None or seconds is None:
        return False
    return (datetime.now(timezone.utc) - datetime.fromisoformat(since.replace("Z", "+00:00"))).total_seconds() >= seconds


def _free_addresses(count: int) -> list[str]:
    """Returns unused addresses on loopback, in place of names of services."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


class _Node:
    """Runs the container `tensorflow` of each of its pods as a process.

    Each process has its own session. Containers restart at once. Images, resources,
    init and side containers have no effect. Each process finds the Python of this
    process first on its PATH. Processes have no
    mounts: if a value in a pod's env, command or args has a path at or below a claim's
      mountPath, it gets the claim's folder instead. Paths inside documents stay, so a
      test
    with such documents mounts a claim at its own folder.
    """

    def __init__(self, api: ApiServer, folder: Path, environment: Mapping[str, str]):
        self._api, self._folder, self._environment = api, folder, environment
        self._running: dict[str, _Process] = {}  # pod's uid -> its process

    def look(self) -> None:
        """Starts, restarts, ends and reports on processes."""
        for pod in self._api.objects("pods"):
            if pod["spec"].get("nodeName") == NODE:
                self._look(pod)

    def end(self) -> None:
        """Ends all processes."""
        for process in self._running.values():
            process.end(LEAVE_SECONDS, everyone=True)
        while running := [process for process in self._running.values() if process.poll() is None]:
            time.sleep(POLL_SECONDS)
            for process in running:
                process.end(LEAVE_SECONDS)
        self._running.clear()

    def _look(self, pod: Document) -> None:
        meta = pod["metadata"]
        process = self._running.get(meta["uid"])
        code = process.poll() if process else None
        if "deletionTimestamp" in meta:
            if process and code is None:
                # As the kubelet does: only the container's first process gets SIGTERM,
                # and all of them are killed in the end.
                process.end(pod["spec"].get("terminationGracePeriodSeconds", 30))
                return
            self._running.pop(meta["uid"], None)
            self._api.remove(meta["namespace"], meta["name"])
        elif process and code is not None:
            del self._running[meta["uid"]]
            self._ended(pod, code)
        elif _phase(pod) == "Pending":
            self._start(pod, 0, {})

    def _ended(self, pod: Document, code: int) -> None:
        old = pod["status"]["containerStatuses"][0]
        reason = "Error" if code else "Completed"
        terminated = {"exitCode": code, "reason": reason, "finishedAt": now(), **old["state"].get("running", {})}
        policy = pod["spec"]["restartPolicy"]
        if policy == "Always" or (policy == "OnFailure" and code):
            self._start(pod, old["restartCount"] + 1, {"terminated": terminated})
        else:
            self._report(pod, "Failed" if code else "Succeeded", {"terminated": terminated}, old["restartCount"], {})

    def _start(self, pod: Document, restarts: int, last: Document) -> None:
        meta = pod["metadata"]
        log = self._folder / f"{meta['name']}-{meta['uid'][:8]}-{restarts}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        self._api.logs[meta["namespace"], meta["name"]] = log
        try:
            self._running[meta["uid"]] = self._process(pod, log)
        except (OSError, ValueError) as error:
            terminated = {"exitCode": 128, "reason": "StartError", "message": str(error)}
            self._report(pod, "Failed", {"terminated": terminated}, restarts, last)
        else:
            self._report(pod, "Running", {"running": {"startedAt": now()}}, restarts, last)

    def _report(self, pod: Document, phase: str, state: Document, restarts: int, last: Document) -> None:
        image = next(container["image"] for container in pod["spec"]["containers"] if container["name"] == CONTAINER)
        container = {"name": CONTAINER, "image": image, "imageID": "", "ready": phase == "Running", "state": state}
        container |= {"started": phase == "Running", "restartCount": restarts, "lastState": last}
        status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [container]}
        with contextlib.suppress(ApiError):  # the pod has been deleted
            self._api.set_status(pod["metadata"]["namespace"], pod["metadata"]["name"], status, "pods")

    def _process(self, pod: Document, log: Path) -> "_Process":
        container = next(container for container in pod["spec"]["containers"] if container["name"] == CONTAINER)
        mounts = self._mounts(pod, container)
        variables: dict[str, str] = {}
        for variable in container.get("env", []):
            variables[variable["name"]] = _at(mounts, _expand(_value(variable, pod), variables))
        arguments = [*container.get("command", []), *container.get("args", [])]
        if not arguments:
            raise ValueError("no command specified")
        here = {**os.environ, **self._environment}
        here["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), here.get("PATH", os.defpath)])
        return _Process(
            [_at(mounts, _expand(argument, variables)) for argument in arguments],
            {**here, **variables},
            log,
            _at(mounts, container.get("workingDir", str(self._folder))),
        )

    def _mounts(self, pod: Document, container: Document) -> dict[str, str]:
        claims = {
            volume["name"]: self._folder / "claims" / volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in volume
        }
        mounts = {}
        for mount in container.get("volumeMounts", []):
            if mount["name"] in claims:
                folder = claims[mount["name"]] / mount.get("subPath", "")
                folder.mkdir(parents=True, exist_ok=True)
                mounts[mount["mountPath"].rstrip("/")] = str(folder)
        return mounts


class _Process:
    """A container's process, with everything that it starts in its session."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path, folder: str):
        self._popen = subprocess.Popen(
            arguments,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._log = log
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        self._deadline: float | None = None  # when to kill it, after SIGTERM

    def _write(self) -> None:
        """Writes its output, each line with its time, as container runtimes do."""
        with self._popen.stdout as printed, self._log.open("ab", buffering=0) as log:  # type: ignore[union-attr]
            for line in printed:
                seconds, rest = divmod(time.time_ns(), 10**9)
                at = f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09}Z "
                log.write(at.encode() + line.rstrip(b"\n") + b"\n")

    def poll(self) -> int | None:
        """Returns its exit code, or 128 plus its signal; None while it runs."""
        if self._popen.returncode is None:
            ended = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return None
            # Nothing in a container outlives its first process. The number of the
            # session is not reused until that process has been waited for.
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
            self._writer.join(1.0)
        code = self._popen.returncode
        return code if code >= 0 else 128 - code

    def end(self, patience: float, everyone: bool = False) -> None:
        """Sends SIGTERM on the first call, and kills it `patience` seconds later."""
        if self.poll() is not None:
            return
        deadline = time.monotonic() + patience
        if self._deadline is None:
            (os.killpg if everyone else os.kill)(self._popen.pid, signal.SIGTERM)
        self._deadline = min(self._deadline or deadline, deadline)
        if time.monotonic() >= self._deadline:
            os.killpg(self._popen.pid, signal.SIGKILL)


def _value(variable: Document, pod: Document) -> str:
    """Returns the value of an variable: constant, or a field of the pod."""
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"].get("fieldRef", {}).get("fieldPath")
    if path not in ("metadata.name", "metadata.namespace", "metadata.uid"):
        raise ValueError(f"the fake has no value for {variable['name']}: {variable['valueFrom']}")
    return str(pod["metadata"][path.removeprefix("metadata.")])


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by an existing variable, and `$$` by `$`."""
    return re.sub(
        r"\$\$|\$\(([-._a-zA-Z0-9]+)\)", lambda match: variables.get(match[1], match[0]) if match[1] else "$", text
    )


def _at(mounts: Mapping[str, str], text: str) -> str:
    """Returns a text with the claims' folders in place of their mount paths."""
    if not mounts:
        return text
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w.-])", lambda match: mounts[match[1]], text)
