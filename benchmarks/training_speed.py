"""Compares our Trainer's training speed with that of bare scripts.

    python benchmarks/training_speed.py [--pairs N]

The scripts have the same model, strategy and batch: the digits with a global batch of
64. Each training runs once with few steps and once with many. `whole` is the longer
one, from the call of `fit` to its end, including the first batch; the steady part is
the difference between the two. The hand-written loop runs many steps in each TensorFlow
call, as ours does, with the same metrics.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import bare_cluster
from faults import STRATEGIES
from training import digits_cluster, write_digits

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.training_job import Distribution, TrainingData, TrainingOptions

ROOT = Path(__file__).resolve().parents[1]
FEW, MANY = 200, 2200
HPARAMS = {"hidden_units": 128, "learning_rate": 0.002}
MEASURED = [name for name in STRATEGIES if name != "model_parallel"]  # which `fit` does not support
BY_HAND = [name for name in MEASURED if name != "parameter_server"]  # whose loop would be the coordinator's


def num_replicas(distribution: Distribution) -> int:
    return strategy_table.readers(distribution) * max(distribution.accelerator_count, 1)


def ours(distribution: Distribution, digits: TrainingData, folder: Path, server: ForkServer, steps: int) -> float:
    """Returns the seconds of training with our launcher."""
    options = TrainingOptions(64 // num_replicas(distribution), train_steps=steps)
    with tempfile.TemporaryDirectory(dir=folder) as run:
        return digits_cluster(Path(run), digits, server).train(distribution, options, hparams=HPARAMS).seconds


def bare(mode: str, name: str, distribution: Distribution, digits: TrainingData, steps: int) -> float:
    """Returns the seconds of training of the bare script, in the chief."""
    arguments = [mode, name, digits.train.files[0], str(64 // num_replicas(distribution)), str(steps)]
    return bare_cluster.run([ROOT / "benchmarks" / "bare_fit.py", *arguments], distribution)


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
                    our_seconds = [ours(distribution, digits, folder, server, steps) for steps in (FEW, MANY)]
                    fit_seconds = [bare("fit", strategy, distribution, digits, steps) for steps in (FEW, MANY)]
                    loop_seconds = [math.nan, math.nan]
                    if strategy in BY_HAND:
                        loop_seconds = [bare("loop", strategy, distribution, digits, steps) for steps in (FEW, MANY)]
                    our_rate, fit_rate, loop_rate = (
                        (MANY - FEW) / (many - few) for few, many in (our_seconds, fit_seconds, loop_seconds)
                    )
                    ratios = (our_rate / fit_rate, fit_seconds[1] / our_seconds[1], our_rate / loop_rate)
                    rows.append((our_rate, fit_rate, loop_rate, *ratios))
                medians = [statistics.median(column) for column in zip(*rows, strict=True)]
                rates = "".join(f"{rate:>{width}.0f}" for rate, width in zip(medians, (8, 8, 9), strict=False))
                print(f"{strategy:<24}{rates}{medians[3]:>10.2f}{medians[4]:>8.2f}{medians[5]:>14.2f}", flush=True)


if __name__ == "__main__":
    main()
