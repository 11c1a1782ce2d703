"""Compares examples' pipelines with the same pipelines of stock TFX components.

    python benchmarks/pipeline_time.py [--pipelines digits taxi taxi-large taxi-huge]
                                       [--pairs N]

The stock pipelines train with a `run_fn`. Both have the same graph, data, splits,
model, strategy, batch, training steps and thresholds. Neither side sets a variable: the
stock Trainer uses Keras 3, which TensorFlow has by default, and ours Keras 2, its own
default. They run in turn, each in a fresh folder and a fresh process.

`taxi-large` has 14 times TFX's trips, repeated with other times (210,028, a CSV file of
27 MB), `taxi-huge` 140 times (2.1 million, 270 MB); both train for one epoch.

Prints the wall time in seconds, the memory of the largest process in MiB, and the ratio
of the times of each pair; then the time of each component, of the last pair.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2

ROOT = Path(__file__).resolve().parents[1]

# As in the stock pipelines, where an epoch has no last, smaller batch.
PARAMETERS = ("strategy=one_device", "accelerator_type=cpu", "per_replica_batch_size=64", "drop_remainder=true")
AIMS = {"digits": 0.38, "taxi": 0.40, "taxi-large": 0.35, "taxi-huge": 0.30}
TIMES = {"taxi-large": 14, "taxi-huge": 140}  # repetitions of the taxi example's trips


class Run(NamedTuple):
    """A run of a pipeline.

    Attributes:
      seconds: From an empty folder to a pushed model.
      peak_mib: Memory of the largest process.
      components: Name of a component -> its seconds.
    """

    seconds: float
    peak_mib: float
    components: dict[str, float]


def write_trips(folder: Path, times: int) -> None:
    """Writes the taxi example's trips several times, each 15 minutes after the last."""
    import tfx

    source = Path(tfx.__file__).parent / "examples" / "chicago_taxi_pipeline" / "data" / "simple" / "data.csv"
    with source.open(newline="") as file:
        header, *rows = csv.reader(file)
    start = header.index("trip_start_timestamp")
    folder.mkdir()
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for number in range(times):
            writer.writerows([*row[:start], int(row[start]) + 900 * number, *row[start + 1 :]] for row in rows)


def ours(name: str, root: str, trips: Path | None) -> list[str | Path]:
    pairs = [word for pair in PARAMETERS for word in ("-p", pair)]
    pipeline = ROOT / "examples" / name / "pipeline.yaml"
    if trips:
        document = yaml.safe_load(pipeline.read_text())
        document["module"], document["data"]["csv"] = str(pipeline.with_name("model.py")), str(trips)
        pipeline = trips.with_suffix(".yaml")
        pipeline.write_text(yaml.safe_dump(document))
        pairs += ["-p", "epochs=1"]
    return [sys.executable, "-m", "tfx_distribute.pipelines", "run", pipeline, *pairs, "--root", root]


def stock(name: str, root: str, trips: Path | None, times: int) -> list[str | Path]:
    # Of 15,002 trips, TFX's hash puts two thirds into `train`.
    data = [trips, str(times * 10_000)] if trips else []
    return [sys.executable, ROOT / "benchmarks" / "stock" / "stock_pipeline.py", name, root, *data]


def measure(command: list[str | Path], root: str) -> Run:
    """Runs a pipeline, which has to push a model."""
    with open(f"{root}.log", "wb") as log:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.monotonic() - start
    if status:
        raise SystemExit(Path(f"{root}.log").read_text()[-3000:])
    (model,) = Path(root, "serving").iterdir()
    assert (model / "saved_model.pb").is_file(), "the pipeline pushed a model"  # noqa: S101
    return Run(elapsed, usage.ru_maxrss / 1024, component_seconds(root))


def component_seconds(root: str) -> dict[str, float]:
    """Returns how long each component took, as ML Metadata has it."""
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(next(Path(root).glob("metadata*")))
    store = metadata_store.MetadataStore(config)
    types = {each.id: each.name.rpartition(".")[2] for each in store.get_execution_types()}
    return {
        types[each.type_id]: (each.last_update_time_since_epoch - each.create_time_since_epoch) / 1000
        for each in store.get_executions()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", nargs="+", choices=AIMS, default=["digits", "taxi"], help="what to run")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores\n\npipeline     ours, s    MiB   stock, s    MiB   ours / stock")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.pipelines:
            example, times = name.partition("-")[0], TIMES.get(name, 0)
            trips = Path(folder, f"{name}-trips") if times else None
            if trips:
                write_trips(trips, times)
            ratios = []
            for pair in range(options.pairs):
                our_root, stock_root = (f"{folder}/{name}-{side}-{pair}" for side in ("ours", "stock"))
                our_run = measure(ours(example, our_root, trips), our_root)
                stock_run = measure(stock(example, stock_root, trips, times), stock_root)
                ratios.append(our_run.seconds / stock_run.seconds)
                columns = (f"{run.seconds:10.1f} {run.peak_mib:6.0f}" for run in (our_run, stock_run))
                print(f"{name:10}{' '.join(columns)}   {ratios[-1]:.2f}", flush=True)
            for component in {**our_run.components, **stock_run.components}:
                seconds = (f"{run.components.get(component, 0.0):10.1f}       " for run in (our_run, stock_run))
                print(f"  {component[:18]:18}{' '.join(seconds)}")
            print(f"{name} median ratio {statistics.median(ratios):.2f} (aim: at most {AIMS[name]})\n", flush=True)


if __name__ == "__main__":
    main()
