"""Starts the training processes of a cluster one by one, as Kubernetes does in pods."""

import json
import os
import subprocess
import sys
from pathlib import Path

from running import free_port

from tfx_distribute.trainer_module.job.cluster import replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.lifecycle.lease import LEASE_VARIABLE


class SingleProcesses:
    """Training processes of a job, with one replica of each role.

    ```python
    with SingleProcesses(job, tmp_path) as processes:
        processes.start("chief")
        assert processes.wait() == {"chief": 0}
    ```

    Args:
      job: The job.
      folder: Folder for its document and for logs.
      has_lease: True if the processes get the lease `followed.json` in the folder.
    """

    def __init__(self, job: TrainingJob, folder: Path, has_lease: bool = False):
        self._folder, self._has_lease = folder, has_lease
        self._addresses = {role: [f"localhost:{free_port()}"] for role in replicas_of_roles(job.distribution)}
        self._processes: dict[str, subprocess.Popen] = {}
        (folder / "job.json").write_text(job.to_json())

    def start(self, role: str, settings: str = "pass") -> None:
        """Starts a process.

        Args:
          role: Its role.
          settings: Python statement to run first, such as one that shortens a wait.
        """
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": self._addresses, "task": {"type": role, "index": 0}}),
            **({LEASE_VARIABLE: str(self._folder / "followed.json")} if self._has_lease else {}),
        }
        code = (
            f"import sys; from tfx_distribute.trainer_module import process; {settings}; "
            f"sys.exit(process.main({str(self._folder / 'job.json')!r}))"
        )
        with self._log(role).open("w") as log:
            self._processes[role] = subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stdout=log, stderr=subprocess.STDOUT
            )

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
