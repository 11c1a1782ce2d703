"""Trains in a network and a file system of its own, which it spoils on the way; prints what came of it, as JSON.

unshare --user --map-root-user --net --mount python isolated.py cut|full|read-only|temporary|unguarded FOLDER
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from faults import STRATEGIES, can_be_struck, continued, messages
from training import digits_cluster, write_digits

from tfx_distribute.components.launchers.local import loopback as loopback_library
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.job.training_job import FaultTolerance, TrainingOptions


def loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)  # noqa: S607


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S607


class Spoil:
    """Cuts the network, or write-protects the checkpoints, past a training step; mends the network once that is noticed.

    The temporary folder, which logs and reports go to, is full as soon as the processes have started.
    """

    def __init__(self, how: str, checkpoints: str, temporary: Path):
        self._how, self._checkpoints, self._temporary, self._done = how, checkpoints, temporary, False

    def __call__(self, task, progress) -> None:
        if self._how == "cut" and progress.message and "restart" in progress.message:
            loopback("up")
        elif self._how == "temporary":
            fill(self._temporary)
        elif progress.step > 150 and not progress.message and not self._done:
            self._done = True
            if self._how == "cut":
                loopback("down")
            elif self._how == "read-only":
                mount("-o", "remount,ro", self._checkpoints)


def fill(folder: Path) -> None:
    """Leaves no space in a folder."""
    with contextlib.suppress(OSError), open(folder / "full", "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)


def main(how: str, folder: Path) -> None:
    loopback("up")
    if how == "unguarded":  # the library that guards servers is there, and cannot be loaded
        (library,) = Path(loopback_library.__file__).parent.glob("_loopback*.so")
        (folder / "broken.so").write_bytes(b"not a library")
        mount("--bind", str(folder / "broken.so"), str(library))
    with ForkServer(folder / "log") as server:
        cluster = can_be_struck(digits_cluster(folder, write_digits(folder), server))
        checkpoints = cluster.job.outputs.checkpoint_dir
        os.mkdir(checkpoints)
        # Room for one state of some 130 KiB, or for many.
        mount("-t", "tmpfs", "-o", "size=200k" if how == "full" else "size=10m", "tmpfs", checkpoints)
        recovery = FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=100, heartbeat_timeout_secs=3)
        strategy = STRATEGIES["multi_worker_mirrored"]
        temporary = folder / "temporary"
        temporary.mkdir()
        refused = ""
        if how == "temporary":
            mount("-t", "tmpfs", "-o", "size=400k", "tmpfs", str(temporary))
            cluster.folder = temporary  # of the job document, the reports and the logs
        result = cluster.train(
            strategy, TrainingOptions(32, epochs=20), Spoil(how, checkpoints, temporary), recovery=recovery
        )
        free = shutil.disk_usage(temporary).free
        if how == "temporary":
            try:
                (temporary / "job.json").unlink()
                fill(temporary)
                cluster.train(strategy)
            except TrainingError as error:
                refused = str(error)
        state = json.loads((Path(checkpoints) / "state.json").read_text())
    print(
        json.dumps(
            {
                "train_steps": result.train_steps,
                "messages": messages(cluster),
                "continued": continued(cluster),
                "free": free,
                "refused": refused,
                "saved": state["position"]["step"],
                "files": sorted(path.name for path in Path(checkpoints).iterdir()),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
