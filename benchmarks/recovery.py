"""What it costs to save the training state, and how soon training goes on after a process was killed.

    python benchmarks/recovery.py [--pairs N]

The first table: seconds of training with many saves and without, of the examples' own pipelines; from them what a save
takes, and what part of training time that is at the default interval. The second: seconds from the start of a launcher to
the first training step that it reports (a cold start), and from the kill of a process to the first new step reported.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "modules"))

from faults import STRATEGIES, Strike, can_be_struck
from training import TrainingCluster, digits_cluster, write_digits

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job.training_job import FaultTolerance, TrainingOptions

REPOSITORY = Path(__file__).resolve().parents[1]
SAVES = 20
STEPS = {"digits": 6000, "taxi": 2000}


def seconds(example: str, strategy: list[str], root: Path, every: int) -> float:
    """Training time of an example's pipeline that saves every so many steps; 0 saves never."""
    arguments = ["run", str(REPOSITORY / "examples" / example / "pipeline.yaml"), "--root", str(root)]
    given = {"train_steps": STEPS[example], "save_checkpoints_secs": 0, "save_checkpoints_steps": every}
    for pair in (*strategy, *(f"{name}={value}" for name, value in given.items())):
        arguments += ["-p", pair]
    done = subprocess.run(
        [sys.executable, "-m", "tfx_distribute.pipelines", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    log = re.search(r"^log +(/.*)$", done.stdout, re.M)
    found = log and re.findall(r"TrainingResult\(.*seconds=([\d.]+)", Path(log[1]).read_text(errors="replace"))
    if not found:
        sys.exit(done.stdout + done.stderr)
    return float(found[-1])


def until_first_step(cluster: TrainingCluster, strategy: str, which: list[int] | None) -> float:
    """Seconds from the start, or from the kill of some processes, to the first step that is new."""
    seen: list[tuple[float, int, str]] = []
    strike = Strike(cluster, signal.SIGKILL, 300, which) if which is not None else None
    struck_at: list[float] = []

    def listen(task, progress):  # type: ignore[no-untyped-def]
        if strike:
            before = len(strike.pids)
            strike(task, progress)
            if len(strike.pids) > before:
                struck_at.append(time.monotonic())
        seen.append((time.monotonic(), progress.step, progress.message))

    began = time.monotonic()
    cluster.train(STRATEGIES[strategy], on_progress=listen)
    if not strike:
        return next(at for at, step, _ in seen if step) - began
    went_on, after = next(
        (number, step) for number, (_, step, message) in enumerate(seen) if message.startswith("continues")
    )
    return next(at for at, step, _ in seen[went_on:] if step > after) - struck_at[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    print(f"{os.cpu_count()} cores\n")
    cost_of_saves(pairs)
    after_a_kill(pairs)


def cost_of_saves(pairs: int) -> None:
    two = ["strategy=multi_worker_mirrored", "num_workers=2", "accelerator_type=cpu"]
    print("pipeline  strategy                training, s  with saves   a save   at the default interval", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for example in STEPS:
            for name, strategy in (("as it is", []), ("multi_worker_mirrored", two)):
                root = Path(folder) / example
                for _ in range(pairs):
                    never, often = (seconds(example, strategy, root, every) for every in (0, STEPS[example] // SAVES))
                    each = (often - never) / (SAVES - 1)
                    part = each / FaultTolerance.save_checkpoints_secs
                    print(f"{example:9} {name:23} {never:11.1f} {often:11.1f} {each:7.3f} s {part:26.2%}", flush=True)
                    shutil.rmtree(root)  # nothing from cache


def after_a_kill(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        print("\nstrategy                killed    cold start, s   after a kill, s   ratio", flush=True)
        digits = write_digits(Path(folder))
        for strategy, role, which in (
            ("default", "chief", [0]),
            ("multi_worker_mirrored", "worker 0", [1]),
            ("parameter_server", "ps 0", [3]),
        ):
            for number in range(pairs):
                own = Path(folder) / f"{strategy}-{number}"
                own.mkdir()
                made = can_be_struck(digits_cluster(own, digits, None))
                made.job = replace(made.job, schedule=TrainingOptions(32, train_steps=4000), recovery=FaultTolerance(0, 200))
                cold = until_first_step(made, strategy, None)
                shutil.rmtree(made.job.outputs.checkpoint_dir)
                with ForkServer(own / "log") as made.server:
                    warm = until_first_step(made, strategy, which)
                print(f"{strategy:23} {role:9} {cold:13.1f} {warm:17.1f} {warm / cold:7.2f}", flush=True)


if __name__ == "__main__":
    main()
