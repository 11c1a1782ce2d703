"""Compares ways of writing a Transform of many numbers.

    python benchmarks/wide_transform.py [--features N] [--pairs N]

Each way scales the same features of 427 examples to z-scores: one feature after the
other, all of them in one tensor, and the same without splitting it again. Prints the
seconds of TFX's Transform, each in a fresh process, and the greatest difference of a
value from the first way's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import data

EXAMPLES = 427


def each(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow_transform as tft

    return {name: tft.scale_to_z_score(number) for name, number in inputs.items()}


def together(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf
    import tensorflow_transform as tft

    scaled = tft.scale_to_z_score(tf.concat(list(inputs.values()), axis=1), elementwise=True)
    return dict(zip(inputs, tf.split(scaled, len(inputs), axis=1), strict=True))


def one_feature(inputs: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf
    import tensorflow_transform as tft

    return {"numbers": tft.scale_to_z_score(tf.concat(list(inputs.values()), axis=1), elementwise=True)}


WAYS = (each, together, one_feature)


def make(folder: Path, features: int) -> None:
    """Writes examples of random numbers, and their schema."""
    import numpy as np
    import tensorflow as tf

    names = [f"number_{index:03}" for index in range(features)]
    (folder / "raw" / "Split-train").mkdir(parents=True)
    data.write_schema(folder, {"FLOAT": names})
    path = folder / "raw" / "Split-train" / "data_tfrecord-00000-of-00001.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for values in np.random.default_rng(0).normal(5, 3, [EXAMPLES, features]):
            feature = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                for name, value in zip(names, values, strict=True)
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def transform(folder: Path, way: str) -> dict[str, Any]:
    """Runs TFX's Transform, and applies it to the examples; returns seconds, values."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_transform as tft

    from tfx_distribute.components.beam import patches

    patches.install()
    with tempfile.TemporaryDirectory() as output:
        result = data.transform(folder, Path(output), preprocessing_fn=f"wide_transform.{way}")
        layer = tft.TFTransformOutput(f"{output}/graph")
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(str(folder / "raw" / "*" / "*")), "GZIP").batch(EXAMPLES)
        raw = tf.io.parse_example(next(iter(records)), layer.raw_feature_spec())
        transformed = layer.transform_raw_features(raw)
        values = np.concatenate([transformed[name] for name in sorted(transformed)], axis=1)
    return {"seconds": result["seconds"], "values": values.tolist()}


def run(folder: Path, way: str) -> dict[str, Any]:
    """Runs one way in a separate process."""
    process = subprocess.run(
        [sys.executable, __file__, "--way", way, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(Path(__file__).parent)},
        timeout=600,
    )
    if process.returncode:
        sys.exit(process.stderr)
    return dict(json.loads(process.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=30, help="numbers of each example")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    for hidden in ("--way", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(transform(Path(options.folder), options.way)))
        return
    import numpy as np

    print(f"{os.cpu_count()} cores, {options.features} features\n\nway             s   greatest difference", flush=True)
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), options.features)
        for _ in range(options.pairs):
            results = {way.__name__: run(Path(name), way.__name__) for way in WAYS}
            for way, result in results.items():
                difference = np.abs(np.subtract(result["values"], results["each"]["values"])).max()
                print(f"{way:11} {result['seconds']:5.1f}   {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
