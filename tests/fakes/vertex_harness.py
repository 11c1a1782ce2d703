"""Runs the contract of launchers with a fake of Vertex AI, whose jobs run a script."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

import pytest
from launcher_harness import Act
from process_harnesses import ProcessHarness
from vertex_api import VertexApi
from vertex_pools import Options

from tfx_distribute.components.launchers.launcher import Launcher, Restarts
from tfx_distribute.components.launchers.vertex.launcher import VertexLauncher, VertexTrainingSettings

POOL = {"machine_spec": {"machine_type": "n1-standard-4"}, "container_spec": {"image_uri": "image"}}
SETTINGS = VertexTrainingSettings(
    name="digits", project="project", location="us-central1", worker=POOL, parameter_server=POOL
)


class VertexHarness(ProcessHarness):
    """Has each CustomJob run the script, which the service does not start again."""

    SKIPPED: ClassVar[Mapping[str, str]] = {
        "it does not start in time": "a job that is pending counts as queued: the service has its own limit on the wait"
    }

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        super().__init__(folder, monkeypatch)
        self._acts: tuple[Act, ...] = ()
        self._api = VertexApi(folder / "jobs", Options(grace=0.5))
        self._api.forked = _Scripts(self._script)
        self._api.__enter__()
        self._connection = self._api.connected()

    def act(self, *acts: Act) -> None:
        """Takes `wait` only as the first act, and then for all starts."""
        super().act(*acts)
        self._acts = acts
        if acts[0] == "wait":
            self._api.plan("PENDING")

    def make_launcher(self, restarts: Restarts) -> Launcher[Any]:
        return VertexLauncher(SETTINGS)

    def num_starts(self) -> int:
        """Counts jobs, as one may not have come to its script yet."""
        return len(self._api.all("customJobs")) if self._acts[0] != "wait" else 0

    def exists(self) -> bool:
        """Jobs that have ended stay for people to look at."""
        states = {self._api.state(job.name) for job in self._api.all("customJobs")}
        return bool(states & {"QUEUED", "PENDING", "RUNNING"}) or self.is_running()

    def close(self) -> None:
        self._connection.close()
        self._api.__exit__()
        super().close()


class _Scripts:
    """Starts the script in place of each process; see `ForkedProcesses`."""

    def __init__(self, script: Path):
        self._script = script

    def start(
        self, arguments: Sequence[str], variables: Mapping[str, str], folder: Path, log: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        """Starts it in a session of its own."""
        return subprocess.Popen(
            ["/bin/sh", self._script], env=variables, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
