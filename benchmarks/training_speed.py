"""Training steps per second under our Trainer against a bare `fit` script with the same model, strategy and batch.

Global batch 64 of the digits. Each training is run with few and with many steps: `whole` is the longer one from the call
of `fit` to its end, its first batch included; `steady` is what the further steps took.

    python benchmarks/training_speed.py [--pairs N]
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tfx_distribute.components.launchers import local
from tfx_distribute.components.launchers.fork_server import ForkServer
from tfx_distribute.trainer_module.job import (
    Data,
    Distribution,
    Outputs,
    Schedule,
    Split,
    TrainingJob,
    UserModule,
)

ROOT = Path(__file__).resolve().parents[1]
FEW, MANY = 200, 2200
SCHEMA = """
feature { name: "pixels" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 64 } } }
feature { name: "digit" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
WRITE_DIGITS = """
import sys, numpy as np, tensorflow as tf
from sklearn.datasets import load_digits
digits = load_digits()
# They come in the order of their writers.
rows = np.random.default_rng(0).permutation(1797)[int(sys.argv[2]):int(sys.argv[3])]
with tf.io.TFRecordWriter(sys.argv[1], tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
    for pixels, digit in zip(digits.data[rows] / 16.0, digits.target[rows]):
        writer.write(tf.train.Example(features=tf.train.Features(feature={
            "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=pixels)),
            "digit": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
        })).SerializeToString())
"""
SHAPES = {
    "default": Distribution("default", accelerator_type="cpu"),
    "one_device": Distribution("one_device", accelerator_type="cpu"),
    "mirrored": Distribution("mirrored", accelerator_type="cpu", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
}


def write_digits(path: Path, first: int, end: int) -> None:
    """Writes some of the digits, in an order drawn at random."""
    words = [sys.executable, "-c", WRITE_DIGITS, str(path), str(first), str(end)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)


def replicas(distribution: Distribution) -> int:
    return distribution.num_workers * max(distribution.accelerator_count, 1)


def ours(distribution: Distribution, folder: Path, server: ForkServer, steps: int) -> float:
    """Seconds of training under our launcher."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        job = TrainingJob(
            module=UserModule("model.build_model", (str(ROOT / "examples" / "digits"),)),
            data=Data(Split((str(folder / "digits.gz"),), 1797), None, "digit", None, str(folder / "schema.pbtxt")),
            distribution=distribution,
            schedule=Schedule(64 // replicas(distribution), train_steps=steps),
            outputs=Outputs(f"{run}/model", f"{run}/run", f"{run}/result.json"),
            hparams={"hidden_units": 128, "learning_rate": 0.002},
        )
        quiet = local.LocalSettings(log_dir=Path(run, "logs"), server=server, on_progress=lambda task, progress: None)
        with local.settings(quiet):
            return local.launch(job, run).seconds


def bare(name: str, distribution: Distribution, folder: Path, steps: int) -> float:
    """Seconds of `fit` in the bare script; of the chief where there are several processes."""
    workers = distribution.num_workers
    with tempfile.TemporaryDirectory(dir=folder) as run:
        processes = []
        addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
        for index in range(workers):
            environment = dict(os.environ)
            if workers > 1:
                environment["TF_CONFIG"] = json.dumps(
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
                )
            arguments = [name, str(folder / "digits.gz"), str(64 // replicas(distribution)), str(steps)]
            with open(Path(run, f"{index}.log"), "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, ROOT / "benchmarks" / "bare_fit.py", *arguments],
                        env=environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        for process in processes:
            process.wait(timeout=600)
        lines = Path(run, "0.log").read_text().splitlines()
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
    print(f"{os.cpu_count()} cores; steps per second; ratio = ours / bare, median of {pairs}\n")
    print(f"{'strategy':<24}{'ours, steady':>14}{'bare, steady':>14}{'ratio steady':>14}{'ratio whole':>14}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.pbtxt").write_text(SCHEMA)
        write_digits(folder / "digits.gz", 0, 1797)
        with ForkServer(folder / "fork-server.log") as server:
            server.wait_ready()
            for strategy, distribution in SHAPES.items():
                rows = []
                for _ in range(pairs):
                    a = [ours(distribution, folder, server, steps) for steps in (FEW, MANY)]
                    b = [bare(strategy, distribution, folder, steps) for steps in (FEW, MANY)]
                    steady = [(MANY - FEW) / (took[1] - took[0]) for took in (a, b)]
                    rows.append((*steady, steady[0] / steady[1], b[1] / a[1]))
                middle = [statistics.median(column) for column in zip(*rows, strict=True)]
                print(f"{strategy:<24}{middle[0]:>14.0f}{middle[1]:>14.0f}{middle[2]:>14.2f}{middle[3]:>14.2f}", flush=True)


if __name__ == "__main__":
    main()
