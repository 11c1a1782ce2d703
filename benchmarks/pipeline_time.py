"""Compares examples' pipelines with the same pipelines of stock TFX components.

    python benchmarks/pipeline_time.py [--pipelines digits taxi] [--pairs N]

The stock pipelines train with a `run_fn`. Both have the same graph, data, splits,
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

# As in the stock pipelines, where an epoch has no last, smaller batch.
PARAMETERS = ("strategy=one_device", "accelerator_type=cpu", "per_replica_batch_size=64", "drop_remainder=true")
AIMS = {"digits": 0.38, "taxi": 0.45}


def ours(name: str, root: str) -> list[str | Path]:
    pairs = [word for pair in PARAMETERS for word in ("-p", pair)]
    pipeline = ROOT / "examples" / name / "pipeline.yaml"
    return [sys.executable, "-m", "tfx_distribute.pipelines", "run", pipeline, *pairs, "--root", root]


def stock(name: str, root: str) -> list[str | Path]:
    return [sys.executable, ROOT / "benchmarks" / "stock" / "stock_pipeline.py", name, root]


def seconds(command: list[str | Path], root: str) -> float:
    """Returns the wall time of a pipeline from an empty folder to a pushed model."""
    with open(f"{root}.log", "wb") as log:
        start = time.monotonic()
        subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT, timeout=600)
        elapsed = time.monotonic() - start
    (model,) = Path(root, "serving").iterdir()
    assert (model / "saved_model.pb").is_file(), "the pipeline pushed a model"  # noqa: S101
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", nargs="+", choices=AIMS, default=list(AIMS), help="examples to run")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores\n\npipeline   ours, s   stock, s   ours / stock")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.pipelines:
            ratios = []
            for pair in range(options.pairs):
                our_root, stock_root = (f"{folder}/{name}-{side}-{pair}" for side in ("ours", "stock"))
                our_seconds = seconds(ours(name, our_root), our_root)
                stock_seconds = seconds(stock(name, stock_root), stock_root)
                ratios.append(our_seconds / stock_seconds)
                print(f"{name:8} {our_seconds:9.1f} {stock_seconds:10.1f}   {ratios[-1]:.2f}", flush=True)
            print(f"{name:8} median ratio {statistics.median(ratios):.2f} (aim: at most {AIMS[name]})\n", flush=True)


if __name__ == "__main__":
    main()
