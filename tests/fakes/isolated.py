"""Trains in its own network and file system, breaks them, and prints the outcome.

    unshare --user --map-root-user --net --mount python isolated.py MODE FOLDER

MODE is `cut` (of the network, until the launcher restarts the cluster), or `full`
(space for one state only, and the library that guards servers cannot be loaded). The
outcome is one JSON object.
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


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S607


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


def main(mode: str, folder: Path) -> None:
    loopback("up")
    if mode == "full":  # the library that guards servers exists, but cannot be loaded
        (library,) = Path(loopback_library.__file__).parent.glob("_loopback*.so")
        (folder / "broken.so").write_bytes(b"not a library")
        mount("--bind", str(folder / "broken.so"), str(library))
    with ForkServer(folder / "log") as server:
        cluster = can_be_struck(digits_cluster(folder, write_digits(folder), server))
        checkpoints = cluster.job.outputs.checkpoint_dir
        os.mkdir(checkpoints)
        # Space for one state of about 130 KiB, or for many.
        mount("-t", "tmpfs", "-o", "size=200k" if mode == "full" else "size=10m", "tmpfs", checkpoints)
        fault_tolerance = FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=50, heartbeat_timeout_secs=3)
        result = cluster.train(
            STRATEGIES["multi_worker_mirrored"],
            TrainingOptions(32, epochs=12),
            Cut() if mode == "cut" else None,
            fault_tolerance=fault_tolerance,
            # Epochs 2 and 3 end after steps 66 and 88, before the save of step 100.
            hparams={**cluster.job.hparams, "slow_epochs": [2, 3]},
        )
        (path,) = Path(checkpoints).glob("*/state.json")
        state = json.loads(path.read_text())
    print(
        json.dumps(
            {
                "train_steps": result.train_steps,
                "messages": cluster.messages(),
                "continued": continued(cluster),
                "saved": state["position"]["step"],
                "files": sorted(each.name for each in path.parent.iterdir()),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
