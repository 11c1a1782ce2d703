"""Runs custom jobs as Vertex AI does, with a process on loopback for each replica.

Sources: https://cloud.google.com/vertex-ai/docs/training, pages
understanding-training-service and distributed-training.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from forked import ForkedProcess, ForkedProcesses
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from google.rpc import code_pb2, status_pb2
from vertex_admission import REDUCTION_SERVER

State = types.JobState
Report = Callable[[str, State, status_pb2.Status | None], None]

POLL_SECONDS = 0.03
LEAVE_SECONDS = 5.0  # for processes to end when the fake itself ends
ROLES = ("chief", "worker", "ps", "evaluator")  # of the worker pools, in TF_CONFIG


@dataclass(frozen=True)
class Options:
    """Behavior of custom jobs.

    The service counts exceptions of user code as permanent, which ends the job at once,
    and retries other failures. It does not decide by exit codes alone, and its
    documentation and its logs do not fully agree. So a test chooses which exit codes
    are permanent.

    Attributes:
      worker_restarts: How many times a failed replica is started again.
      job_restarts: How many times the whole job is started again after that.
      permanent: Exit codes after which there is no restart.
      grace: Seconds from SIGTERM to SIGKILL.
      start_spacing: Seconds between the starts of two replicas of a job, the last
        replica first. Machines do not start together, and in no order.
      environment: Environment variables of all processes. They override those of this
        process; those of containers override them.
      lone_tf_config: True if a job with one replica has a TF_CONFIG, as in logs of the
        service, but not in its documentation.
      evaluator_in_cluster: True if the cluster in TF_CONFIG has evaluators, which the
        documentation denies. CLUSTER_SPEC has them.
    """

    worker_restarts: int = 5
    job_restarts: int = 3
    permanent: Collection[int] = ()
    grace: float = 5.0
    start_spacing: float = 0.1
    environment: Mapping[str, str] = field(default_factory=dict)
    lone_tf_config: bool = True
    evaluator_in_cluster: bool = False


class Pools:
    """Runs custom jobs. A context manager; ends every process that it started.

    A final state is reported only after all processes have ended.

    Args:
      folder: Folder for the output of replicas: a folder per job, with a file per
        replica.
      lock: Held while it reports; callers have to hold it too.
      report: Called with each new state of a job, and its error.
      options: How jobs run.

    Attributes:
      held: True if jobs stay in the queue, as without quota.
      forked: Forks the Python processes of jobs that come from now on; None for new
        processes.
    """

    def __init__(self, folder: Path, lock: threading.RLock, report: Report, options: Options):
        self.held = False
        self.forked: ForkedProcesses | None = None
        self._folder, self._lock, self._report, self._options = folder, lock, report, options
        self._jobs: dict[str, _Job] = {}
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Pools":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        for job in self._jobs.values():
            job.end(min(self._options.grace, LEAVE_SECONDS), wait=True)
        if self._error and not error[1]:
            raise self._error

    def add(self, name: str, job: types.CustomJob) -> None:
        """Queues a job."""
        self._jobs[name] = _Job(name, job, self._folder, self._options, self.forked)

    def cancel(self, name: str) -> None:
        """Ends a job that has not ended."""
        status = status_pb2.Status(code=code_pb2.CANCELLED, message="CANCELED")
        self._jobs[name].leave(State.JOB_STATE_CANCELLED, status)

    def remove(self, name: str) -> None:
        """Ends a job without a report, and waits for its end."""
        if name in self._jobs:
            self._jobs.pop(name).end(0.0, wait=True)

    def restart(self, name: str, replica: str) -> None:
        """Ends a replica and starts it again, as for the maintenance of its machine."""
        self._jobs[name].replicas[replica].moves = True

    def pids(self, name: str) -> dict[str, int]:
        """Returns replica -> process id, for those that run."""
        replicas = self._jobs[name].replicas if name in self._jobs else {}
        return {key: replica.process.pid for key, replica in replicas.items() if replica.process and replica.poll() is None}

    def _run(self) -> None:
        try:
            while not self._ended.wait(POLL_SECONDS):
                with self._lock:
                    for name, job in list(self._jobs.items()):
                        state = job.look(self.held)
                        if state:
                            self._report(name, state, job.status)
                        if job.final:
                            del self._jobs[name]
        except BaseException as error:
            self._error = error


class _Job:
    """A custom job that has not ended."""

    def __init__(self, name: str, job: types.CustomJob, folder: Path, options: Options, forked: ForkedProcesses | None):
        self.status: status_pb2.Status | None = None  # the error
        self.final = False
        self._name, self._spec, self._options = name, job.job_spec, options
        self._state = State.JOB_STATE_QUEUED
        self._next: State | None = None  # the state after the end of all replicas
        self._restarts = 0
        self._started: float | None = None
        counts = [pool.replica_count for pool in self._spec.worker_pool_specs]
        addresses = iter(_free_addresses(sum(counts)))
        self._cluster = {pool: [next(addresses) for _ in range(count)] for pool, count in enumerate(counts) if count}
        folder = folder / name.rpartition("/")[2]
        folder.mkdir(parents=True, exist_ok=True)
        # The primary replica is the first.
        self.replicas = {
            f"workerpool{pool}-{index}": _Replica(
                self._spec.worker_pool_specs[pool].container_spec,
                {**options.environment, **self._variables(pool, index)},
                folder / f"workerpool{pool}-{index}.log",
                forked,
            )
            for pool, hosts in self._cluster.items()
            for index in range(len(hosts))
        }

    def leave(self, then: State, status: status_pb2.Status | None = None) -> None:
        """Starts to end all replicas."""
        if self._next in (None, State.JOB_STATE_PENDING):
            self._next, self.status = then, status
            for replica in self.replicas.values():
                replica.start_at = 0.0

    def end(self, grace: float, wait: bool = False) -> bool:
        """Ends all replicas; returns True if they have ended."""
        while running := [replica for replica in self.replicas.values() if replica.poll() is None and replica.process]:
            for replica in running:
                replica.end(grace)
            if not wait:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def look(self, held: bool) -> State | None:
        """Advances the job.

        Returns:
          The new state; None if it is unchanged.
        """
        before = self._state
        if self._next:
            if self.end(self._options.grace):
                self._state, self._next = self._next, None
                self.final = self._state != State.JOB_STATE_PENDING
        elif self._state == State.JOB_STATE_QUEUED:
            self._state = before if held else State.JOB_STATE_PENDING
        elif self._state == State.JOB_STATE_PENDING:
            spacing = self._options.start_spacing
            for number, replica in enumerate(reversed(self.replicas.values())):
                replica.schedule(time.monotonic() + number * spacing)
            self._state, self._started = State.JOB_STATE_RUNNING, self._started or time.monotonic()
        else:
            self._look_at_replicas()
        return self._state if self._state != before else None

    def _look_at_replicas(self) -> None:
        for number, (name, replica) in enumerate(self.replicas.items()):
            if replica.start_at and time.monotonic() >= replica.start_at:
                replica.start()
            code = replica.poll()
            if replica.moves and code is None:
                replica.end(self._options.grace)
            elif replica.moves:
                replica.moves = False
                self._restart(replica)
            elif code == 0 and number == 0:
                self.leave(State.JOB_STATE_SUCCEEDED)
            elif code:
                self._failed(name, replica, code)
            if self._next:
                return
        timeout = self._spec.scheduling.timeout if "timeout" in self._spec.scheduling else None
        if timeout and self._started and time.monotonic() - self._started >= timeout.total_seconds():
            message = f"The job has run for longer than its timeout of {timeout.total_seconds():g} seconds."
            self.leave(State.JOB_STATE_CANCELLED, status_pb2.Status(code=code_pb2.CANCELLED, message=message))

    def _restart(self, replica: "_Replica") -> None:
        if self._spec.scheduling.restart_job_on_worker_restart and not self._spec.scheduling.disable_retries:
            self.leave(State.JOB_STATE_PENDING)
        else:
            replica.start()

    def _failed(self, name: str, replica: "_Replica", code: int) -> None:
        again = not self._spec.scheduling.disable_retries and code not in self._options.permanent
        if again and replica.restarts < self._options.worker_restarts:
            replica.restarts += 1
            self._restart(replica)
        elif again and self._restarts < self._options.job_restarts:
            self._restarts += 1
            for other in self.replicas.values():
                other.restarts = 0
            self.leave(State.JOB_STATE_PENDING)
        else:
            message = _message(self._name, name, code, replica)
            self.leave(State.JOB_STATE_FAILED, status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=message))

    def _variables(self, pool: int, index: int) -> dict[str, str]:
        """Returns the environment variables that the service sets."""
        document = json_format.MessageToDict(types.CustomJobSpec.pb(self._spec), preserving_proto_field_name=True)
        of_all = {"environment": "cloud", "job": json.dumps(document, separators=(",", ":"))}
        hosts = {f"workerpool{number}": addresses for number, addresses in self._cluster.items()}
        spec = {"cluster": hosts, "task": {"type": f"workerpool{pool}", "index": index}, **of_all}
        variables = {"CLUSTER_SPEC": json.dumps(spec), "CLOUD_ML_JOB_ID": self._name.rpartition("/")[2]}
        roles = {ROLES[number]: addresses for number, addresses in self._cluster.items()}
        if not self._options.evaluator_in_cluster:
            roles.pop("evaluator", None)
        if self._options.lone_tf_config or sum(map(len, hosts.values())) > 1:
            variables["TF_CONFIG"] = json.dumps({"cluster": roles, "task": {"type": ROLES[pool], "index": index}, **of_all})
        output = self._spec.base_output_directory.output_uri_prefix.rstrip("/")
        if output:
            places = {"AIP_MODEL_DIR": "model", "AIP_CHECKPOINT_DIR": "checkpoints", "AIP_TENSORBOARD_LOG_DIR": "logs"}
            variables |= {variable: f"{output}/{place}/" for variable, place in places.items()}
        if self._spec.tensorboard:
            variables["AIP_TENSORBOARD_RESOURCE_NAME"] = self._spec.tensorboard
        return variables


class _Replica:
    """A replica: its container's process, in the folder of its output.

    The process has its own session, and finds the Python of this process first on its
    PATH, and the type of machine has no effect. There is no Reduction Server here: its
    replicas run without a process.
    """

    def __init__(
        self, container: types.ContainerSpec, variables: Mapping[str, str], log: Path, forked: ForkedProcesses | None
    ):
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.restarts = 0
        self.start_at = 0.0  # when to start it; 0 for never, or if it was started
        self.moves = False  # True if it has to be restarted
        self.broken = ""  # why it could not be started
        self.log = log
        self.printed_before = 0  # size of the log at the last start
        self._container, self._variables, self._forked = container, variables, forked
        self._deadline: float | None = None  # when to kill it, after SIGTERM

    def schedule(self, at: float) -> None:
        """Has it start at a time, and forgets how it ended before."""
        self.process, self.broken, self.start_at = None, "", at

    def start(self) -> None:
        """Starts it, for the first time or again."""
        self.process, self.broken, self._deadline, self.start_at = None, "", None, 0.0
        if self._container.image_uri == REDUCTION_SERVER:
            return
        here = {**os.environ, **self._variables}
        here["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), here.get("PATH", os.defpath)])
        for variable in self._container.env:
            here[variable.name] = _expand(variable.value, here)
        arguments = [_expand(argument, here) for argument in (*self._container.command, *self._container.args)]
        is_python = arguments[:1] == ["python"]
        try:
            if not arguments:
                raise ValueError("no command specified")
            with self.log.open("ab") as log:
                self.printed_before = log.tell()
                if is_python and self._forked:
                    self.process = self._forked.start(arguments[1:], here, self.log.parent, log, ends_session=True)
                    return
                self.process = subprocess.Popen(
                    [sys.executable, *arguments[1:]] if is_python else arguments,
                    env=here,
                    cwd=self.log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            self.broken = str(error)

    def poll(self) -> int | None:
        """Returns its exit code, or 128 plus the signal that ended it.

        Returns None while it runs, or before it was started.
        """
        if self.process is None:
            return 128 if self.broken else None
        if isinstance(self.process, ForkedProcess):
            if self.process.poll() is None:
                return None
        elif self.process.returncode is None:
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            # Nothing in a container outlives its first process. The number of the
            # session is not reused until that process has been waited for.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        code = self.process.returncode
        assert code is not None
        return code if code >= 0 else 128 - code

    def end(self, grace: float) -> None:
        """Sends SIGTERM on the first call, and kills it after a number of seconds."""
        if self.process is None or self.poll() is not None:
            return
        if self._deadline is None:
            os.kill(self.process.pid, signal.SIGTERM)
        self._deadline = min(self._deadline or float("inf"), time.monotonic() + grace)
        if time.monotonic() >= self._deadline:
            os.killpg(self.process.pid, signal.SIGKILL)


def _message(job: str, name: str, code: int, replica: _Replica) -> str:
    """Describes a failed replica, with its last lines and the address of its logs."""
    if replica.broken:
        reason = f"StartError. \n Termination log message: failed to create containerd task: {replica.broken}"
    else:
        printed = replica.log.read_bytes()[replica.printed_before :][-2048:].decode(errors="replace")
        reason = "Error. \n" + "\n".join(printed.splitlines()[-80:])
    project, job_id = job.split("/")[1], job.rpartition("/")[2]
    query = quote(f'resource.type="ml_job"\nresource.labels.job_id="{job_id}"', safe="")
    logs = f"https://console.cloud.google.com/logs/viewer?project={project}&resource=ml_job%2Fjob_id%2F{job_id}"
    return (
        f"The replica {name} exited with a non-zero status of {code}. Termination reason: {reason}\n\n"
        f"To find out more about why your job exited please check the logs: {logs}&advancedFilter={query}"
    )


def _free_addresses(count: int) -> list[str]:
    """Returns unused loopback addresses, in place of machines and their port 2222."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by an existing variable, and `$$` by `$`."""
    return re.sub(
        r"\$\$|\$\(([-._a-zA-Z0-9]+)\)", lambda match: variables.get(match[1], match[0]) if match[1] else "$", text
    )
