"""Injects random faults into trainings, one after the other, and shows the results.

    python tests/soak.py [--faults N] [--seed N]

Each training is a real cluster on the digits that saves every ten training steps. One
process, or all, is killed, stopped as if it hung, or asked to leave, while it trains or
in the middle of a save. Exits with 1 if a training did not end like an undisturbed one:
all steps, one model, no process and no temporary file left, and no more training steps
lost than there are between two saves.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).parent / "fakes"))

from faults import EVERY, STRATEGIES, Strike, can_be_struck, continued, fault, struck
from running import children
from training import digits_cluster, write_digits

from tfx_distribute.components.launchers.local.fork_client import ForkServer

KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}
TASKS = {
    "multi_worker_mirrored": ["chief-0", "worker-0", "all"],
    "parameter_server": ["chief-0", "worker-0", "worker-1", "ps-0", "all"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=30, help="trainings that are struck")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6, help="of what strikes where and when")
    options = parser.parse_args()
    choose = random.Random(options.seed)  # noqa: S311 (no secret)
    print(f"{options.faults} faults, seed {options.seed}\n")
    print(
        f"{'strategy':22} {'process':<12} {'fault':<9} {'step':>5} {'went on after':>14} {'lost':>5} {'seconds':>8}  "
        "outcome",
        flush=True,
    )
    failed = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        _temporary_folder(Path(folder) / "tmp"),
        ForkServer(Path(folder) / "log") as server,
    ):
        digits = write_digits(Path(folder))
        for number in range(options.faults):
            training_folder = Path(folder) / str(number)
            training_folder.mkdir()
            failed += not _strike(can_be_struck(digits_cluster(training_folder, digits, server).exporting()), choose)
            shutil.rmtree(training_folder)
    print(f"\n{options.faults - failed} of {options.faults} ended as if undisturbed")
    return 1 if failed else 0


@contextlib.contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    """Gives each training its own temporary folder, to find files that it leaves."""
    folder.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    yield
    tempfile.tempdir = None
    del os.environ["TMPDIR"]


def _strike(cluster, choose: random.Random) -> bool:
    strategy = choose.choice(list(STRATEGIES))
    task = choose.choice(TASKS.get(strategy, ["chief-0"]))
    kind = choose.choice(list(KINDS))
    in_save = task == "chief-0" and choose.random() < 0.25
    step = choose.randrange(5, 40)
    replicas = 1 if strategy in ("default", "one_device", "parameter_server") else 2
    began, wrong, on_progress, hparams = time.monotonic(), [], None, None
    if task == "all" or (strategy == "parameter_server" and task != "chief-0"):
        on_progress, in_save = Strike(cluster, KINDS[kind], step, "" if task == "all" else task), False
        hparams = fault(cluster, "kill", "nobody", fault_step=0)  # makes it train step by step
    else:
        hparams = fault(cluster, kind, task, **({"fault_save": step // EVERY + 1} if in_save else {"fault_step": step}))
    try:
        result = cluster.train(STRATEGIES[strategy], hparams=hparams, on_progress=on_progress)
        if result.train_steps != 88 // replicas:
            wrong.append(f"{result.train_steps} steps")
        if not (cluster.model / "saved_model.pb").exists():
            wrong.append("no model")
    except Exception as error:
        wrong.append(str(error).splitlines()[0])
    at = struck(cluster)["step"] if (cluster.folder / "struck").exists() else None
    after = continued(cluster)
    lost = at - (after[0] if after else 0) if at and kind != "terminate" else 0
    if lost > EVERY:
        wrong.append("too many steps lost")
    if children(cluster.server.pid):
        wrong.append("processes are left")
    if any(Path(tempfile.gettempdir()).iterdir()):
        wrong.append("temporary files are left")
    where = f"{task}{' save' if in_save else ''}"
    print(
        f"{strategy:22} {where:<12} {kind:<9} {at if at else f'>{step}':>5} {after[0] if after else '-':>14} {lost:>5} "
        f"{time.monotonic() - began:>8.1f}  {'; '.join(wrong) or 'as if nothing had been'}",
        flush=True,
    )
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
