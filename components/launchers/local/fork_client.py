"""Starts the fork server of training processes, and sends it requests about them.

Does not import TensorFlow, so that the server starts early.
"""

import os
from concurrent import futures
from pathlib import Path

from tfx_distribute.components import timeouts
from tfx_distribute.components.fork_client import ForkClient, import_path, module_command
from tfx_distribute.components.launchers.local import loopback
from tfx_distribute.trainer_module import tpu_library
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import keras_environment
from tfx_distribute.trainer_module.liveness.exposure import Exposure

LAST_LINES = 30  # a traceback of Python 3.13 has 20
_LAST_BYTES = 1 << 16  # of a log, in which to look for them


class ForkServer(ForkClient):
    """A process that has imported TensorFlow, and forks training processes.

    Start it before you need it: the import takes seconds, in which the caller can do
    something else. `log` gets the output of the server itself. Its training processes
    use `keras_version`, 2 or 3.
    """

    def __init__(self, log: str | Path, keras_version: int = 2):
        self.log = Path(log)
        self.keras_version = keras_version
        environment = {
            **os.environ,
            **tpu_library.NOT_LOADED,
            **keras_environment(keras_version),
            **loopback.environment(os.environ),
        }
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stderr:
            super().__init__("tfx_distribute.trainer_module.process:prepare", environment, stderr)

    def wait_ready(self) -> Exposure:
        """Waits until TensorFlow is imported.

        Returns who can connect to the servers of training processes.

        Raises:
          TrainingError: The import took too long, or failed.
        """
        try:
            answer = self.ready.result(timeouts.IMPORT_SECONDS)
        except futures.TimeoutError:
            raise TrainingError(
                f"TensorFlow was not imported within {timeouts.IMPORT_SECONDS:g} s; see {self.log}"
            ) from None
        self.check()
        return Exposure(answer["exposure"])

    def check(self) -> None:
        """Raises a TrainingError if the server has ended."""
        if self.has_ended:
            raise TrainingError("\n".join(["the process that starts training processes ended:", *last_lines(self.log)]))

    def start(
        self, job: Path, log: Path, environment: dict[str, str], imports_tensorflow: bool = False
    ) -> "futures.Future[int]":
        """Starts a training process with the import path of this process.

        `environment` has variables that are added. With `imports_tensorflow`, it
        imports TensorFlow itself, which takes seconds; otherwise it has that of the
        server. Returns its exit code, see `fork`.
        """
        command = None
        if imports_tensorflow:
            command = [*module_command("tfx_distribute.trainer_module"), "--job", str(job)]
            environment = {**environment, "PYTHONPATH": os.pathsep.join(import_path()), "PYTHONUNBUFFERED": "1"}
        return self.fork("tfx_distribute.trainer_module.process:main", [str(job)], environment, str(log), command)

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def last_lines(log: Path) -> list[str]:
    """Returns the last lines of a log of any size; [] if there is none."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        return file.read().decode(errors="replace").rstrip().splitlines()[-LAST_LINES:]
