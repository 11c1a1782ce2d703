"""Runs a bare script in each process of a cluster on this machine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tfx_distribute.components.launchers.local.launcher import local_cluster
from tfx_distribute.trainer_module.job.cluster import is_server, replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution


def run(arguments: list[str | Path], distribution: Distribution) -> float:
    """Runs a script in each process, and ends servers when the others have ended.

    Args:
      arguments: The script and its arguments.
      distribution: Says which processes there are. One alone has no TF_CONFIG.

    Returns:
      The seconds that the chief prints, in a line `seconds <number>`.

    Raises:
      RuntimeError: A process failed.
    """
    cluster = local_cluster(replicas_of_roles(distribution))
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, f"{task.file_name}.log") for task in cluster.tasks]
        try:
            for task, path in zip(cluster.tasks, logs, strict=True):
                environment = dict(os.environ)
                if len(cluster.tasks) > 1:
                    environment["TF_CONFIG"] = cluster.tf_config(task)
                with path.open("wb") as log:
                    command = [sys.executable, *arguments]
                    processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
            for process, task, path in zip(processes, cluster.tasks, logs, strict=True):
                if not is_server(distribution, task) and process.wait(timeout=600):
                    raise RuntimeError(f"{task.file_name} failed: {path.read_text()[-2000:]}")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        (seconds,) = [line.split()[1] for line in logs[0].read_text().splitlines() if line.startswith("seconds ")]
    return float(seconds)
