"""Starts the training processes of a cluster one by one, as Kubernetes does in pods."""

import json
import os
from pathlib import Path

from forked import ForkedProcess, ForkedProcesses
from running import free_port

from tfx_distribute.trainer_module.job.cluster import replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.liveness import cluster_peers
from tfx_distribute.trainer_module.liveness.lease import LEASE_VARIABLE


class SingleProcesses:
    """Training processes of a job, with one replica of each role.

    ```python
    with SingleProcesses(forked_trainings, job, tmp_path) as processes:
        processes.start("chief")
        assert processes.wait() == {"chief": 0}
    ```

    Args:
      forked: Forks them from a process that has imported TensorFlow.
      job: The job.
      folder: Folder for its document and for logs.
      has_lease: True if the processes get the lease `followed.json` in the folder.
    """

    def __init__(self, forked: ForkedProcesses, job: TrainingJob, folder: Path, has_lease: bool = False):
        self._forked, self._folder, self._has_lease = forked, folder, has_lease
        self._addresses = {role: [f"localhost:{free_port()}"] for role in replicas_of_roles(job.distribution)}
        self._processes: dict[str, ForkedProcess] = {}
        (folder / "job.json").write_text(job.to_json())

    def start(self, role: str, settings: str = "pass") -> None:
        """Starts a process; the settings are a Python statement that runs first."""
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": self._addresses, "task": {"type": role, "index": 0}}),
            **({LEASE_VARIABLE: str(self._folder / "followed.json")} if self._has_lease else {}),
        }
        code = (
            "import sys; from tfx_distribute.trainer_module import process; "
            "from tfx_distribute.trainer_module import timeouts; "
            "timeouts.CHIEF_GONE_SECONDS = 3.0; "  # those that serve the chief leave soon after it
            f"{settings}; sys.exit(process.main({str(self._folder / 'job.json')!r}))"
        )
        with self._log(role).open("wb") as log:
            self._processes[role] = self._forked.start(["-c", code], environment, self._folder, log)

    def wait_until_listening(self, role: str) -> None:
        """Waits until a process listens at its address, as it does while it waits."""
        assert cluster_peers.wait_for(self._addresses[role], 100.0), self.output(role)

    def wait(self, seconds: float = 280.0) -> dict[str, int]:
        """Returns the exit codes of all processes by role."""
        return {role: process.wait(seconds) for role, process in self._processes.items()}

    def output(self, role: str) -> str:
        return self._log(role).read_text()

    def _log(self, role: str) -> Path:
        return self._folder / f"{role}.log"

    def __enter__(self) -> "SingleProcesses":
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
