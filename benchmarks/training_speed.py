"""Training steps per second under our Trainer against bare scripts with the same model, strategy and batch.

Global batch 64 of the digits. Each training is run with few and with many steps: `whole` is the longer one from the call
of `fit` to its end, its first batch included; `steady` is what the further steps took. The loop by hand takes many steps in
each TensorFlow call, as ours does, with the same metrics.

    python benchmarks/training_speed.py [--pairs N]
"""

import argparse
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "modules"))

from faults import STRATEGIES
from training import digits_cluster, write_digits

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import Cluster, is_server, replicas_of_roles
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingData, TrainingOptions

ROOT = Path(__file__).resolve().parents[1]
FEW, MANY = 200, 2200
HPARAMS = {"hidden_units": 128, "learning_rate": 0.002}
MEASURED = [name for name in STRATEGIES if name != "model_parallel"]  # which `fit` does not know
BY_HAND = [name for name in MEASURED if name != "parameter_server"]  # whose loop is the coordinator's


def replicas(distribution: Distribution) -> int:
    return strategy_table.readers(distribution) * max(distribution.accelerator_count, 1)


def ours(distribution: Distribution, digits: TrainingData, folder: Path, server: ForkServer, steps: int) -> float:
    """Seconds of training under our launcher."""
    schedule = TrainingOptions(64 // replicas(distribution), train_steps=steps)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        return digits_cluster(Path(run), digits, server).train(distribution, schedule, hparams=HPARAMS).seconds


def bare(how: str, name: str, distribution: Distribution, digits: TrainingData, folder: Path, steps: int) -> float:
    """Seconds of training in the bare script; of the chief where there are several processes."""
    roles = replicas_of_roles(distribution)
    ports = free_ports(sum(roles.values()))
    cluster = Cluster.of(roles, (f"127.0.0.1:{port}" for port in ports))
    with tempfile.TemporaryDirectory(dir=folder) as run:
        processes = []
        for task in cluster.tasks:
            environment = dict(os.environ)
            if len(ports) > 1:
                environment["TF_CONFIG"] = cluster.tf_config(task)
            arguments = [how, name, digits.train.files[0], str(64 // replicas(distribution)), str(steps)]
            with open(Path(run, f"{task.file_name}.log"), "wb") as log:
                words = [sys.executable, ROOT / "benchmarks" / "bare_fit.py", *arguments]
                processes.append(subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            processes[0].wait(timeout=600)
            for process, task in zip(processes[1:], cluster.tasks[1:], strict=True):
                if not is_server(distribution, task):
                    process.wait(timeout=60)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        lines = Path(run, "chief-0.log").read_text().splitlines()
        (took,) = [float(line.split()[1]) for line in lines if line.startswith("seconds ")]
        return took


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    print(f"{os.cpu_count()} cores; steps per second of the steady part, and ratios to ours, median of {pairs}\n")
    print(f"{'strategy':<24}{'ours':>8}{'fit':>8}{'by hand':>9}{'ours/fit':>10}{'whole':>8}{'ours/by hand':>14}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        digits = replace(write_digits(folder), eval=None)
        with ForkServer(folder / "fork-server.log") as server:
            server.wait_ready()
            for strategy in MEASURED:
                distribution = STRATEGIES[strategy]
                rows = []
                for _ in range(pairs):
                    a = [ours(distribution, digits, folder, server, steps) for steps in (FEW, MANY)]
                    b = [bare("fit", strategy, distribution, digits, folder, steps) for steps in (FEW, MANY)]
                    c = [math.nan, math.nan]
                    if strategy in BY_HAND:
                        c = [bare("loop", strategy, distribution, digits, folder, steps) for steps in (FEW, MANY)]
                    rates = [(MANY - FEW) / (took[1] - took[0]) for took in (a, b, c)]
                    rows.append((*rates, rates[0] / rates[1], b[1] / a[1], rates[0] / rates[2]))
                middle = [statistics.median(column) for column in zip(*rows, strict=True)]
                print(
                    f"{strategy:<24}{middle[0]:>8.0f}{middle[1]:>8.0f}{middle[2]:>9.0f}{middle[3]:>10.2f}{middle[4]:>8.2f}"
                    f"{middle[5]:>14.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
