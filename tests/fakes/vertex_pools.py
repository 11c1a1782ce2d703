"""Runs custom jobs as Vertex AI does, with a process on loopback for each replica."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from forked import ForkedProcesses, Process, kill_container, start_container
from google.cloud.aiplatform_v1 import types
from running import free_ports

POLL_SECONDS = 0.03
ROLES = ("chief", "worker", "ps")  # of the worker pools, in TF_CONFIG

Forked = ForkedProcesses | None
Report = Callable[[str, str], None]


@dataclass(frozen=True)
class Options:
    """Environment variables of all replicas, and seconds from SIGTERM to SIGKILL."""

    grace: float = 5.0
    environment: Mapping[str, str] = field(default_factory=dict)


class PoolJob(threading.Thread):
    """A custom job that runs; it reports each state, and the error of the last.

    It starts no failed replica again, and has no Reduction Server.
    """

    def __init__(self, spec: types.CustomJobSpec, folder: Path, options: Options, report: Report, forked: Forked):
        super().__init__(daemon=True)
        self.processes: dict[str, Process] = {}
        self._options, self._report, self._forked, self._folder = options, report, forked, folder
        self._cancelled = threading.Event()
        self._containers = {
            f"workerpool{number}-{index}": pool.container_spec
            for number, pool in enumerate(spec.worker_pool_specs)
            for index in range(pool.replica_count)
        }
        # In place of machines and their port 2222.
        ports = free_ports(len(self._containers))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(self._containers, ports, strict=True)}
        cluster: dict[str, list[str]] = {}
        for replica, address in addresses.items():
            cluster.setdefault(_role(replica), []).append(address)
        tasks = {replica: {"type": _role(replica), "index": int(replica.rpartition("-")[2])} for replica in addresses}
        self._variables = {
            replica: {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for replica, task in tasks.items()
        }
        folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Runs the job to its end."""
        self._report("PENDING", "")
        self._report("RUNNING", "")
        state, error = self._run_replicas()
        self._end_all()
        self._report(state, error)

    def cancel(self) -> None:
        """Ends the job soon."""
        self._cancelled.set()

    def _run_replicas(self) -> tuple[str, str]:
        """Returns the state that follows, and the error."""
        for replica in self._containers:
            self._start(replica)
        while not self._cancelled.wait(POLL_SECONDS):
            for replica, process in list(self.processes.items()):
                code = process.poll()
                if code == 0 and replica == "workerpool0-0":
                    return "SUCCEEDED", ""
                if code:
                    printed = (self._folder / f"{replica}.log").read_text(errors="replace")[-2048:]
                    status = code if code > 0 else 128 - code
                    return "FAILED", f"The replica {replica} exited with a non-zero status of {status}. Error: \n{printed}"
        return "CANCELLED", "CANCELED"

    def _start(self, replica: str) -> None:
        container = self._containers[replica]
        variables = {variable.name: variable.value for variable in container.env}
        environment = {**self._options.environment, **self._variables[replica], **variables}
        with (self._folder / f"{replica}.log").open("ab") as log:
            words = [*container.command, *container.args]
            self.processes[replica] = start_container(words, environment, log, self._forked)

    def _end_all(self) -> None:
        """Ends all processes: with SIGTERM, and after a while with SIGKILL."""
        deadline = time.monotonic() + self._options.grace
        for process in self.processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended since
                    os.kill(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes.values()):
            time.sleep(POLL_SECONDS)
        for process in self.processes.values():
            kill_container(process)
        self.processes.clear()


def _role(replica: str) -> str:
    return ROLES[int(replica.removeprefix("workerpool")[0])]
