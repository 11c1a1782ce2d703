"""Trains the digits model without our code, as a baseline for `training_speed.py`.

    python benchmarks/bare_fit.py fit|loop STRATEGY FILE_PATTERN BATCH_PER_REPLICA STEPS

`fit` is Keras's, with one step per execution. `loop` is a hand-written loop of 200
steps per TensorFlow call, with the same losses and metrics, and nothing that a library
adds. Prints the seconds of training. If there are several processes, each needs its
TF_CONFIG.
"""

import glob
import json
import os
import sys
import time
from collections.abc import Callable

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf

STEPS_PER_CALL = 200


def make_strategy(name: str) -> tf.distribute.Strategy:
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if name == "multi_worker_mirrored":
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "parameter_server":
        return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    if name == "central_storage":
        return tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")
    raise ValueError(f"strategy: {name!r} has no strategy of TensorFlow here; write one")


def make_dataset(pattern: str, batch: int) -> tf.data.Dataset:
    spec = {"pixels": tf.io.FixedLenFeature([64], tf.float32), "digit": tf.io.FixedLenFeature([1], tf.int64)}

    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        example = tf.io.parse_example(serialized, spec)
        return {"pixels": example["pixels"]}, example["digit"]

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return (
        tf.data.TFRecordDataset(sorted(glob.glob(pattern)), "GZIP")
        .shuffle(10_000, seed=0)
        .repeat()
        .batch(batch, drop_remainder=True)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def make_run_steps(model: tf.keras.Model, strategy: tf.distribute.Strategy) -> Callable[..., None]:
    """Returns a TensorFlow function that takes an iterator, and a number of steps."""

    @tf.autograph.experimental.do_not_convert
    def step(batch: tuple) -> None:
        x, y = batch
        with tf.GradientTape() as tape:
            prediction = model(x, training=True)
            loss = model.compute_loss(x, y, prediction)
        # A LossScaleOptimizer scales the loss, and the gradients back.
        model.optimizer.minimize(loss, model.trainable_variables, tape=tape)
        model.compiled_metrics.update_state(y, prediction)

    @tf.function
    def run_steps(iterator: tf.data.Iterator, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            strategy.run(step, args=(next(iterator),))

    return run_steps


def loop(model: tf.keras.Model, strategy: tf.distribute.Strategy, dataset: tf.data.Dataset, steps: int) -> None:
    """Runs training steps, many in each TensorFlow call."""
    run_steps = make_run_steps(model, strategy)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    for done in range(0, steps, STEPS_PER_CALL):
        run_steps(iterator, tf.constant(min(STEPS_PER_CALL, steps - done)))


def main(mode: str, name: str, pattern: str, per_replica: int, steps: int) -> None:
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    if name == "parameter_server" and task["type"] != "chief":
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
        tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"], protocol="grpc").join()
    strategy = make_strategy(name)
    batch = per_replica * strategy.num_replicas_in_sync
    with strategy.scope():
        pixels = tf.keras.Input((64,), name="pixels")
        hidden = tf.keras.layers.Dense(128, activation="relu")(pixels)
        hidden = tf.keras.layers.Dense(128, activation="relu")(hidden)
        model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))
        model.compile(tf.keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", ["accuracy"])
    start = time.monotonic()
    if mode == "loop":
        loop(model, strategy, make_dataset(pattern, batch), steps)
    elif name == "parameter_server":
        creator = tf.keras.utils.experimental.DatasetCreator(lambda context: make_dataset(pattern, batch))
        model.fit(creator, steps_per_epoch=steps, verbose=0)
    else:
        model.fit(make_dataset(pattern, batch), steps_per_epoch=steps, verbose=0)
    print(f"seconds {time.monotonic() - start}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
