"""Compares writing and reading shards with TFX's Transform and DataAccessor.

    python benchmarks/data.py [--examples N] [--pairs N]

The data are made-up taxi rides like those of TFX's examples: 18 features, numbers and
text. Each figure is measured in a separate process. Prints three tables:

1. Seconds of Transform with and without materialising, and of the Sharder with one Beam
   process and with two.
2. Peak memory of the Sharder for a tenth of the data and for all of it.
3. Examples per second, read and parsed in batches of 256, with TFX's DataAccessor and
   with our input pipeline; and of a plain iteration over the same files, in batches and
   one by one.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FLOATS = ("fare", "trip_miles", "pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude", "tips")
INTS = ("trip_seconds", "trip_start_hour", "trip_start_day", "trip_start_month", "pickup_community_area", "census_tract")
TEXTS = ("company", "payment_type", "taxi_id", "pickup_area", "dropoff_area")
FILES = 4
BATCH = 256
RUNNER = "--runner=tfx_distribute.components.beam.direct_runner.DirectRunner"
NO_PACKAGE = "--sdk_container_image=none"  # as in our pipelines: TFX does not package itself
PROCESSES = {
    1: [RUNNER, "--direct_running_mode=in_memory", NO_PACKAGE],
    2: [RUNNER, "--direct_running_mode=multi_processing", "--direct_num_workers=2", NO_PACKAGE],
}


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Scales, buckets and looks up features as TFX's taxi example does."""
    import tensorflow_transform as tft

    outputs = {name: tft.scale_to_z_score(inputs[name]) for name in FLOATS}
    outputs |= {name: tft.bucketize(inputs[name], 10) for name in INTS}
    outputs |= {name: tft.compute_and_apply_vocabulary(inputs[name], top_k=1000, num_oov_buckets=10) for name in TEXTS}
    return outputs


def make(folder: Path, examples: int) -> None:
    """Writes raw examples to gzipped files, as an ExampleGen does, and their schema."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    (folder / "raw" / "Split-train").mkdir(parents=True)
    write_schema(folder, {"FLOAT": FLOATS, "INT": INTS, "BYTES": TEXTS})

    def ride() -> bytes:
        feature = {name: tf.train.Feature(float_list=tf.train.FloatList(value=[random.random()])) for name in FLOATS}
        feature |= {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=[int(random.integers(10_000))])) for name in INTS
        }
        feature |= {
            name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"{name} {random.integers(2000)}".encode()]))
            for name in TEXTS
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    rides = [ride() for _ in range(min(examples, 20_000))]
    for file in range(FILES):
        path = folder / "raw" / "Split-train" / f"data_tfrecord-{file:05d}-of-{FILES:05d}.gz"
        with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)) as writer:
            for number in range(file, examples, FILES):
                writer.write(rides[number % len(rides)])


def artifact(kind: str, uri: Path) -> Any:
    from tfx.types import artifact_utils, standard_artifacts

    result = getattr(standard_artifacts, kind)()
    result.uri = str(uri)
    if kind == "Examples":
        result.split_names = artifact_utils.encode_split_names(["train"])
        result.set_string_custom_property("payload_format", "FORMAT_TF_EXAMPLE")
    return result


def run_executor(
    executor_class: type, folder: Path, beam_args: list[str], inputs: Any, outputs: Any, properties: Any
) -> dict[str, float]:
    """Runs a component's executor; returns its seconds and its peak memory in MiB."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor

    context = BaseBeamExecutor.Context(beam_pipeline_args=beam_args, tmp_dir=str(folder / "tmp"), unique_id="1")
    executor = executor_class(context)
    start = time.monotonic()
    executor.Do(inputs, outputs, properties)
    return {"seconds": time.monotonic() - start, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def write_schema(folder: Path, names_of_types: dict[str, Iterable[str]]) -> None:
    """Writes the schema of examples with one value of each feature."""
    (folder / "schema").mkdir()
    (folder / "schema" / "schema.pbtxt").write_text(
        "\n".join(
            f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} shape {{ dim {{ size: 1 }} }} }}'
            for kind, names in names_of_types.items()
            for name in names
        )
    )


def transform(
    folder: Path, output: Path, materialize: bool = False, preprocessing_fn: str = "data.preprocessing_fn"
) -> dict[str, float]:
    """Runs TFX's Transform, without statistics."""
    from tfx.components.transform.executor import Executor

    inputs = {"examples": [artifact("Examples", folder / "raw")], "schema": [artifact("Schema", folder / "schema")]}
    outputs = {"transform_graph": [artifact("TransformGraph", output / "graph")]}
    if materialize:
        outputs["transformed_examples"] = [artifact("Examples", output / "transformed")]
    properties = {"preprocessing_fn": preprocessing_fn, "disable_statistics": 1, "force_tf_compat_v1": 0}
    properties |= {"custom_config": "null", "splits_config": None}
    return run_executor(Executor, output, PROCESSES[1], inputs, outputs, properties)


def shard(folder: Path, output: Path, processes: int, compression: str = "none") -> dict[str, float]:
    """Runs the Sharder."""
    from tfx_distribute.components.sharder.executor import Executor

    inputs = {
        "examples": [artifact("Examples", folder / "raw")],
        "transform_graph": [artifact("TransformGraph", folder / "graph")],
    }
    outputs = {"sharded_examples": [artifact("Examples", output / "shards")]}
    properties = {"num_shards": 16, "compression": compression}
    return run_executor(Executor, output, PROCESSES[processes], inputs, outputs, properties)


def measure_rate(make_dataset: Callable[[], Any], batch: int, seconds: float = 5.0) -> dict[str, float]:
    """Measures the examples per second of a dataset, after a second of warm-up."""
    import tensorflow as tf

    iterator = iter(make_dataset())

    @tf.function
    def take(count: tf.Tensor) -> tf.Tensor:
        last = tf.constant(0)
        for _ in tf.range(count):
            tf.nest.map_structure(tf.identity, next(iterator), expand_composites=True)
            last += 1
        return last

    def take_for(limit: float) -> tuple[int, float]:
        num_examples, start = 0, time.monotonic()
        while time.monotonic() - start < limit:
            take(tf.constant(max(1, 25_600 // batch)))
            num_examples += max(1, 25_600 // batch) * batch
        return num_examples, time.monotonic() - start

    take_for(1.0)
    num_examples, elapsed = take_for(seconds)
    return {"rate": num_examples / elapsed}


def read_ours(folder: Path, shards: Path) -> dict[str, float]:
    import tensorflow as tf

    from tfx_distribute.components.trainer.input_splits import Splits
    from tfx_distribute.trainer_module.data.feature_specs import Features
    from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
    from tfx_distribute.trainer_module.job.step_plan import make_plan
    from tfx_distribute.trainer_module.job.training_job import InputOptions, TrainingData, TrainingOptions

    input_options = InputOptions(cache="none")
    split = Splits([artifact("Examples", shards)]).read(["train"], "train_args")
    data = TrainingData(split, None, "tips", str(folder / "graph"), None)
    options = TrainingOptions(BATCH, epochs=1)
    plan = make_plan(options, split.num_examples, 1)
    input_pipeline = InputPipeline(data, Features(data), options, input_options, plan, 1, 1)
    return measure_rate(lambda: input_pipeline.train(tf.distribute.InputContext()), BATCH)


def read_accessor(folder: Path, shards: Path) -> dict[str, float]:
    """Reads with the DataAccessor that TFX's Trainer passes to a `run_fn`."""
    import tensorflow_transform as tft
    from tfx.components.trainer import fn_args_utils
    from tfx.components.util import tfxio_utils
    from tfx_bsl.public import tfxio

    accessor = fn_args_utils.DataAccessor(
        tf_dataset_factory=tfxio_utils.get_tf_dataset_factory_from_artifact([artifact("Examples", shards)], ["bench"]),
        record_batch_factory=None,
        data_view_decode_fn=None,
    )
    schema = tft.TFTransformOutput(str(folder / "graph")).transformed_metadata.schema
    options = tfxio.TensorFlowDatasetOptions(batch_size=BATCH, label_key="tips")
    return measure_rate(lambda: accessor.tf_dataset_factory([str(shards / "Split-train" / "*")], options, schema), BATCH)


def iterate(shards: Path, batch: int) -> dict[str, float]:
    """Iterates over the raw records, in batches or, with a batch of 1, one by one."""
    import tensorflow as tf

    files = sorted(map(str, (shards / "Split-train").iterdir()))
    compression = "GZIP" if files[0].endswith(".gz") else ""
    records = tf.data.TFRecordDataset(files, compression, buffer_size=1 << 20).repeat()
    return measure_rate(lambda: records.batch(batch) if batch > 1 else records, batch)


JOBS = {
    "make": lambda folder, output, argument: make(folder, int(argument)),
    "transform": lambda folder, output, argument: transform(folder, output, argument == "materialize"),
    "shard": lambda folder, output, argument: shard(folder, output, int(argument)),
    "shard-gzip": lambda folder, output, argument: shard(folder, output, int(argument), "gzip"),
    "ours": lambda folder, output, argument: read_ours(folder, output),
    "accessor": lambda folder, output, argument: read_accessor(folder, output),
    "iterate": lambda folder, output, argument: iterate(output, BATCH),
    "iterate-singly": lambda folder, output, argument: iterate(output, 1),
}


def run(job: str, folder: Path, output: Path, argument: object = "") -> dict[str, float]:
    """Runs one job in a separate process."""
    command = [sys.executable, __file__, "--job", job, "--folder", folder, "--output", output, "--argument", argument]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment, timeout=3000
    )
    if process.returncode:
        sys.exit(process.stderr)
    return dict(json.loads(process.stdout.splitlines()[-1]) or {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1_600_000, help="examples to write, and to read")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    for hidden in ("--job", "--folder", "--output", "--argument"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(JOBS[options.job](Path(options.folder), Path(options.output), options.argument)))
        return
    with tempfile.TemporaryDirectory() as name:
        print_tables(Path(name), options.examples, options.pairs)


def print_tables(root: Path, examples: int, pairs: int) -> None:
    folder, tenth = root / "all", root / "tenth"
    for data_folder, count in ((folder, examples), (tenth, examples // 10)):
        run("make", data_folder, data_folder, count)
        run("transform", data_folder, data_folder)
    print(f"{os.cpu_count()} cores, {examples:,} examples\n")
    print("Transform, s   materialising   Sharder   with 2 processes   Sharder / materialising   1 process / 2")
    for pair in range(pairs):
        alone = run("transform", folder, root / f"t-{pair}")["seconds"]
        whole = run("transform", folder, root / f"m-{pair}", "materialize")["seconds"]
        one = run("shard", folder, root / f"one-{pair}", 1)["seconds"]
        two = run("shard", folder, root / f"two-{pair}", 2)["seconds"]
        ratio = one / (whole - alone)
        print(f"{alone:12.1f} {whole - alone:15.1f} {one:9.1f} {two:18.1f} {ratio:25.2f} {one / two:15.2f}", flush=True)
    few, many = (run("shard", where, root / f"memory-{where.name}", 1)["peak"] for where in (tenth, folder))
    print(f"\npeak memory, MiB: {few:.0f} for a tenth of the examples, {many:.0f} for all; ratio {many / few:.2f}\n")
    run("shard-gzip", folder, root / "gzip", 2)
    print(
        "examples/s   DataAccessor      ours   iterating   singly   ours / DataAccessor   ours / iterating   ours / singly"
    )
    for name, shards in (("none", root / "one-0" / "shards"), ("gzip", root / "gzip" / "shards")):
        rates: dict[str, list[float]] = {"accessor": [], "ours": [], "iterate": [], "iterate-singly": []}
        for _ in range(pairs):
            for job, job_rates in rates.items():
                job_rates.append(run(job, folder, shards)["rate"])
        accessor, ours, batched, singly = (statistics.median(job_rates) for job_rates in rates.values())
        ratios = [
            statistics.median(our_rate / other for our_rate, other in zip(rates["ours"], rates[job], strict=True))
            for job in ("accessor", "iterate", "iterate-singly")
        ]
        row = f"{name:10} {accessor:14,.0f} {ours:9,.0f} {batched:11,.0f} {singly:8,.0f}"
        print(f"{row} {ratios[0]:21.1f} {ratios[1]:18.2f} {ratios[2]:15.2f}", flush=True)


if __name__ == "__main__":
    main()
