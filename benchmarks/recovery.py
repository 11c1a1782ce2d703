"""Measures the cost of saving the training state, and of resuming after a kill.

    python benchmarks/recovery.py [--pairs N]

Prints two tables:

1. Seconds of training of the examples' pipelines, with many saves and without; and from
   these, the seconds of a save, and its share of the training time at the default
   interval.
2. Seconds from the start of a launcher to the first training step that it reports (a
   cold start), and from the kill of a process to the first new step that it reports.
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
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

from faults import STRATEGIES, Strike, can_be_struck
from training import TrainingCluster, digits_cluster, write_digits

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job.training_job import FaultTolerance, TrainingOptions

REPOSITORY = Path(__file__).resolve().parents[1]
SAVES = 20
STEPS = {"digits": 6000, "taxi": 2000}


def training_seconds(example: str, strategy: list[str], root: Path, save_steps: int) -> float:
    """Returns the training time of an example's pipeline.

    Args:
      example: Name of the example.
      strategy: Pipeline parameters of the strategy, such as `num_workers=2`.
      root: Folder of the pipeline.
      save_steps: Training steps between two saves; 0 to save never.
    """
    arguments = ["run", str(REPOSITORY / "examples" / example / "pipeline.yaml"), "--root", str(root)]
    parameters = {"train_steps": STEPS[example], "save_checkpoints_secs": 0, "save_checkpoints_steps": save_steps}
    for pair in (*strategy, *(f"{name}={value}" for name, value in parameters.items())):
        arguments += ["-p", pair]
    process = subprocess.run(
        [sys.executable, "-m", "tfx_distribute.pipelines", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    log = re.search(r"^log +(/.*)$", process.stdout, re.M)
    seconds = log and re.findall(r"TrainingResult\(.*seconds=([\d.]+)", Path(log[1]).read_text(errors="replace"))
    if not seconds:
        sys.exit(process.stdout + process.stderr)
    return float(seconds[-1])


def seconds_until_first_step(cluster: TrainingCluster, strategy: str, killed: str = "") -> float:
    """Returns the seconds until the first new training step.

    They count from the start or, if there is a task to be `killed`, from its kill.
    """
    reports: list[tuple[float, int, str]] = []
    strike = Strike(cluster, signal.SIGKILL, 300, killed) if killed else None
    killed_at: list[float] = []

    def listen(task, progress):  # type: ignore[no-untyped-def]
        if strike:
            num_killed = len(strike.pids)
            strike(task, progress)
            if len(strike.pids) > num_killed:
                killed_at.append(time.monotonic())
        reports.append((time.monotonic(), progress.step, progress.message))

    start = time.monotonic()
    cluster.train(STRATEGIES[strategy], on_progress=listen)
    if not strike:
        return next(at for at, step, _ in reports if step) - start
    resumed_report, resumed_step = next(
        (number, step) for number, (_, step, message) in enumerate(reports) if message.startswith("continues")
    )
    return next(at for at, step, _ in reports[resumed_report:] if step > resumed_step) - killed_at[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    print(f"{os.cpu_count()} cores\n")
    print_cost_of_saves(pairs)
    print_recovery_times(pairs)


def print_cost_of_saves(pairs: int) -> None:
    two_workers = ["strategy=multi_worker_mirrored", "num_workers=2", "accelerator_type=cpu"]
    print("pipeline  strategy                training, s  with saves   a save   at the default interval", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for example in STEPS:
            for name, strategy in (("as it is", []), ("multi_worker_mirrored", two_workers)):
                root = Path(folder) / example
                for _ in range(pairs):
                    without, with_saves = (
                        training_seconds(example, strategy, root, save_steps) for save_steps in (0, STEPS[example] // SAVES)
                    )
                    save = (with_saves - without) / (SAVES - 1)
                    share = save / FaultTolerance.save_checkpoints_secs
                    print(
                        f"{example:9} {name:23} {without:11.1f} {with_saves:11.1f} {save:7.3f} s {share:26.2%}", flush=True
                    )
                    shutil.rmtree(root)  # so that the next run takes nothing from the cache


def print_recovery_times(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        print("\nstrategy                killed    cold start, s   after a kill, s   ratio", flush=True)
        digits = write_digits(Path(folder))
        tasks = {"default": "chief-0", "multi_worker_mirrored": "worker-0", "parameter_server": "ps-0"}
        for strategy, killed in tasks.items():
            for number in range(pairs):
                run_folder = Path(folder) / f"{strategy}-{number}"
                run_folder.mkdir()
                cluster = can_be_struck(digits_cluster(run_folder, digits, None))
                options, fault_tolerance = TrainingOptions(32, train_steps=4000), FaultTolerance(0, 200)
                cluster.job = replace(cluster.job, training_options=options, fault_tolerance=fault_tolerance)
                cold = seconds_until_first_step(cluster, strategy)
                shutil.rmtree(cluster.job.outputs.checkpoint_dir)
                with ForkServer(run_folder / "log") as cluster.server:
                    warm = seconds_until_first_step(cluster, strategy, killed)
                print(f"{strategy:23} {killed:9} {cold:13.1f} {warm:17.1f} {warm / cold:7.2f}", flush=True)


if __name__ == "__main__":
    main()
