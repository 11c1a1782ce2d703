"""Compares the digits pipeline with the same pipeline of stock TFX components.

    python benchmarks/pipeline_time.py [--pairs N]

The stock pipeline trains with a `run_fn`. Both have the same graph, data, splits,
model, strategy, batch, training steps and thresholds. Neither side sets a variable: the
stock Trainer uses Keras 3, which TensorFlow has by default, and ours Keras 2, its own
default. They run in turn, each in a fresh folder and a fresh process. Prints the wall
time in seconds and the ratio of each pair.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

OURS = [
    *(sys.executable, "-m", "tfx_distribute.pipelines", "run", ROOT / "examples" / "digits" / "pipeline.yaml"),
    *("-p", "strategy=one_device", "-p", "per_replica_batch_size=64", "-p", "epochs=20", "-p", "accelerator_type=cpu"),
    *("-p", "drop_remainder=true"),  # 22 steps an epoch, as in the stock pipeline
    "--root",
]
STOCK = [sys.executable, ROOT / "benchmarks" / "stock" / "digits_pipeline.py"]


def seconds(command: list[str | Path], root: str) -> float:
    """Returns the wall time of a pipeline from an empty folder to a pushed model."""
    with open(f"{root}.log", "wb") as log:
        start = time.monotonic()
        subprocess.run([*command, root], check=True, stdout=log, stderr=subprocess.STDOUT, timeout=600)
        elapsed = time.monotonic() - start
    (model,) = Path(root, "serving").iterdir()
    assert (model / "saved_model.pb").is_file(), "the pipeline pushed a model"  # noqa: S101
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    ratios = []
    print(f"{os.cpu_count()} cores\n\nours, s   stock, s   ours / stock")
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            ours = seconds(OURS, f"{folder}/ours-{pair}")
            stock = seconds(STOCK, f"{folder}/stock-{pair}")
            ratios.append(ours / stock)
            print(f"{ours:7.1f}   {stock:8.1f}   {ratios[-1]:.2f}", flush=True)
    print(f"\nmedian ratio {statistics.median(ratios):.2f} (aim: at most 0.38)")


if __name__ == "__main__":
    main()
