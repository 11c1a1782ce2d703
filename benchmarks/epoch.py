"""Compares epochs of real size with a hand-written loop over the same shards.

    python benchmarks/epoch.py [--examples N] [--pairs N]

A small model of taxi trips, whose steps are so short that reading counts: 12 features
of one value in 16 shards, one CPU device, a batch of 64, Keras 2. `by hand` has the
same model, losses and metrics, shuffles as much, and runs 200 steps in each TensorFlow
call; `parsing` only reads the batches of that loop. `first` is the first epoch, with
the start of the loop and its tracing; `next` is each one after it.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import bare_fit
import tensorflow as tf
from training import TrainingCluster

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    Outputs,
    Split,
    TrainingData,
    TrainingJob,
    TrainingOptions,
    UserModule,
)

FLOATS = ("trip_miles", "fare", "trip_seconds")
SIZES = {"company": 1010, "payment_type": 1010, "hour": 24, "day": 8, "month": 13} | {f"area_{i}": 10 for i in range(4)}
LABEL = "big_tipper"
SHARDS, BATCH, EPOCHS = 16, 64, 3
SHUFFLED = 10_000


def feature_of(values: dict[str, float]) -> dict[str, tf.train.Feature]:
    floats, integers = tf.train.FloatList, tf.train.Int64List
    return {
        name: tf.train.Feature(float_list=floats(value=[value]))
        if isinstance(value, float)
        else tf.train.Feature(int64_list=integers(value=[value]))
        for name, value in values.items()
    }


def write_shards(folder: Path, num_examples: int) -> list[str]:
    """Writes the schema, and shards whose labels follow from a feature."""
    import numpy as np

    kinds = dict.fromkeys(FLOATS, "FLOAT") | dict.fromkeys((*SIZES, LABEL), "INT")
    one_value = "presence { min_fraction: 1 } shape { dim { size: 1 } }"
    schema = [f'feature {{ name: "{name}" type: {kind} {one_value} }}' for name, kind in kinds.items()]
    (folder / "schema.pbtxt").write_text("\n".join(schema))
    random = np.random.default_rng(0)
    files = [str(folder / f"examples-{shard:05d}-of-{SHARDS:05d}.tfrecord") for shard in range(SHARDS)]
    for shard, file in enumerate(files):
        with tf.io.TFRecordWriter(file) as writer:
            for _ in range(shard, num_examples, SHARDS):
                values = {name: float(random.normal()) for name in FLOATS}
                values |= {name: int(random.integers(size)) for name, size in SIZES.items()}
                values[LABEL] = int(values["fare"] + random.normal() > 0)
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature_of(values))).SerializeToString())
    return files


def build_model(context: object = None) -> tf.keras.Model:
    """Returns a wide and deep model, as the taxi example's."""
    numbers = {name: tf.keras.Input((1,), name=name) for name in FLOATS}
    categories = {name: tf.keras.Input((1,), name=name, dtype=tf.int64) for name in SIZES}
    wide = [tf.keras.layers.CategoryEncoding(size, output_mode="one_hot")(categories[name]) for name, size in SIZES.items()]
    deep = tf.keras.layers.concatenate(list(numbers.values()))
    for units in (64, 32, 16):
        deep = tf.keras.layers.Dense(units, activation="relu")(deep)
    probability = tf.keras.layers.Dense(1, activation="sigmoid")(tf.keras.layers.concatenate([*wide, deep]))
    model = tf.keras.Model({**numbers, **categories}, probability)
    model.compile(tf.keras.optimizers.Adam(0.001), "binary_crossentropy", ["accuracy"])
    return model


def make_dataset(files: list[str]) -> tf.data.Dataset:
    """Returns one epoch of batches, as a careful person writes it."""
    spec: dict[str, tf.io.FixedLenFeature] = {name: tf.io.FixedLenFeature([1], tf.float32) for name in FLOATS}
    spec |= {name: tf.io.FixedLenFeature([1], tf.int64) for name in (*SIZES, LABEL)}

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        features = tf.io.parse_example(serialized, spec)
        return features, features.pop(LABEL)

    return (
        tf.data.TFRecordDataset(files, num_parallel_reads=SHARDS)
        .shuffle(SHUFFLED, seed=0)
        .batch(BATCH)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def train(files: list[str], num_examples: int, server: ForkServer) -> list[float]:
    """Returns the seconds of training for one epoch, and for all."""
    split = Split(tuple(files), num_examples, sum(map(os.path.getsize, files)), sharded=True)
    seconds = []
    for epochs in (1, EPOCHS):
        with tempfile.TemporaryDirectory() as run:
            job = TrainingJob(
                module=UserModule("epoch.build_model", (str(Path(__file__).parent),)),
                data=TrainingData(split, None, LABEL, None, str(Path(files[0]).parent / "schema.pbtxt")),
                distribution=Distribution(accelerator_type="cpu"),
                training_options=TrainingOptions(BATCH, epochs=epochs),
                outputs=Outputs("", f"{run}/run", f"{run}/result.json"),
            )
            seconds.append(TrainingCluster(job, Path(run), server).train().seconds)
    return seconds


def loop(files: list[str], num_examples: int, trains: bool) -> list[float]:
    """Returns the seconds of the bare loop for one epoch, and for all."""
    run_steps = bare_fit.make_run_steps(build_model(), tf.distribute.get_strategy())

    @tf.function
    def read_steps(iterator: tf.data.Iterator, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            tf.nest.map_structure(tf.identity, next(iterator))

    run = run_steps if trains else read_steps
    dataset, steps = make_dataset(files), math.ceil(num_examples / BATCH)
    seconds, began = [], time.monotonic()
    for _ in range(EPOCHS):
        iterator = iter(dataset)
        for done in range(0, steps, bare_fit.STEPS_PER_CALL):
            run(iterator, tf.constant(min(bare_fit.STEPS_PER_CALL, steps - done)))
        seconds.append(time.monotonic() - began)
    return [seconds[0], seconds[-1]]


def bare(mode: str, files: list[str], num_examples: int) -> list[float]:
    """Returns what `loop` returns, in a process of its own."""
    command = [sys.executable, __file__, "--mode", mode, "--examples", str(num_examples), *files]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if process.returncode:
        sys.exit(process.stderr)
    return list(json.loads(process.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=140_000)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    parser.add_argument("--mode", choices=["by hand", "parsing"], help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        print(json.dumps(loop(options.files, options.examples, options.mode == "by hand")))
        return
    print(f"{os.cpu_count()} cores, {options.examples:,} examples; seconds of an epoch, median of {options.pairs}\n")
    with tempfile.TemporaryDirectory() as name, ForkServer(Path(name) / "fork-server.log") as server:
        files = write_shards(Path(name), options.examples)
        server.wait_ready()
        epochs: dict[str, list[list[float]]] = {"ours": [], "by hand": [], "parsing": []}
        for _ in range(options.pairs):
            for row, found in epochs.items():
                measured = train(files, options.examples, server) if row == "ours" else bare(row, files, options.examples)
                found.append([measured[0], (measured[1] - measured[0]) / (EPOCHS - 1)])
    print("           first     next   by hand / this: first     next")
    for row, found in epochs.items():
        first, later = (statistics.median(column) for column in zip(*found, strict=True))
        ratios = [
            statistics.median(hand[i] / own[i] for hand, own in zip(epochs["by hand"], found, strict=True)) for i in (0, 1)
        ]
        print(f"{row:<8}{first:>8.1f}{later:>9.1f}{ratios[0]:>24.2f}{ratios[1]:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
