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
from pathlib import Path

from tfx_distribute.components.launchers import local
from tfx_distribute.components.launchers.fork_server import ForkServer
from tfx_distribute.trainer_module import compatibility
from tfx_distribute.trainer_module.cluster import Cluster, replicas_of_roles, serves
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
    "central_storage": Distribution("central_storage", accelerator_type="cpu", accelerator_count=2),
    "multi_worker_mirrored": Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"),
    "parameter_server": Distribution("parameter_server", num_workers=2, accelerator_type="cpu"),
}
BY_HAND = [name for name in SHAPES if name != "parameter_server"]  # whose loop is the coordinator's


def write_digits(path: Path, first: int, end: int) -> None:
    """Writes some of the digits, in an order drawn at random."""
    words = [sys.executable, "-c", WRITE_DIGITS, str(path), str(first), str(end)]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)


def replicas(distribution: Distribution) -> int:
    return compatibility.readers(distribution) * max(distribution.accelerator_count, 1)


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


def bare(how: str, name: str, distribution: Distribution, folder: Path, steps: int) -> float:
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
            arguments = [how, name, str(folder / "digits.gz"), str(64 // replicas(distribution)), str(steps)]
            with open(Path(run, f"{task.file_name}.log"), "wb") as log:
                words = [sys.executable, ROOT / "benchmarks" / "bare_fit.py", *arguments]
                processes.append(subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            processes[0].wait(timeout=600)
            for process, task in zip(processes[1:], cluster.tasks[1:], strict=True):
                if not serves(distribution, task):
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
        (folder / "schema.pbtxt").write_text(SCHEMA)
        write_digits(folder / "digits.gz", 0, 1797)
        with ForkServer(folder / "fork-server.log") as server:
            server.wait_ready()
            for strategy, distribution in SHAPES.items():
                rows = []
                for _ in range(pairs):
                    a = [ours(distribution, folder, server, steps) for steps in (FEW, MANY)]
                    b = [bare("fit", strategy, distribution, folder, steps) for steps in (FEW, MANY)]
                    c = [math.nan, math.nan]
                    if strategy in BY_HAND:
                        c = [bare("loop", strategy, distribution, folder, steps) for steps in (FEW, MANY)]
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
