"""Trains in its own network and file system, breaks them, and prints the outcome.

    unshare --user --map-root-user --net --mount python isolated.py FOLDER

The network is cut until the launcher restarts the cluster, and the library that guards
servers cannot be loaded. The outcome is one JSON object.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from faults import STRATEGIES, can_be_struck, continued
from training import digits_cluster, write_digits

from tfx_distribute.components.launchers.local import loopback as loopback_library
from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job.training_job import FaultTolerance, TrainingOptions


def loopback(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)  # noqa: S607


class Cut:
    """Cuts the network after a step, and restores it at the launcher's next restart."""

    def __init__(self):
        self._done = False

    def __call__(self, task, progress) -> None:
        if progress.message and "restart" in progress.message:
            loopback("up")
        elif progress.step > 60 and not progress.message and not self._done:
            self._done = True
            loopback("down")


def main(folder: Path) -> None:
    loopback("up")
    (library,) = Path(loopback_library.__file__).parent.glob("_loopback*.so")
    (folder / "broken.so").write_bytes(b"not a library")
    subprocess.run(["mount", "--bind", str(folder / "broken.so"), str(library)], check=True)  # noqa: S607
    with ForkServer(folder / "log") as server:
        cluster = can_be_struck(digits_cluster(folder, write_digits(folder), server))
        fault_tolerance = FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=50, heartbeat_timeout_secs=3)
        options = TrainingOptions(32, epochs=12)
        result = cluster.train(STRATEGIES["multi_worker_mirrored"], options, Cut(), fault_tolerance=fault_tolerance)
    outcome = {"train_steps": result.train_steps, "messages": cluster.messages(), "continued": continued(cluster)}
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
