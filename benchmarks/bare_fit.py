"""A bare TensorFlow script: the digits model, a strategy, `fit`. What `training_speed.py` compares with.

    python benchmarks/bare_fit.py STRATEGY FILE_PATTERN BATCH_PER_REPLICA STEPS

Prints the seconds that `fit` took. With multi_worker_mirrored, one process for each worker, each with its TF_CONFIG.
"""

import glob
import os
import sys
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf


def make_strategy(name: str) -> tf.distribute.Strategy:
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    if name == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    return tf.distribute.MultiWorkerMirroredStrategy()


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


def main(name: str, pattern: str, per_replica: int, steps: int) -> None:
    strategy = make_strategy(name)
    dataset = make_dataset(pattern, per_replica * strategy.num_replicas_in_sync)
    with strategy.scope():
        pixels = tf.keras.Input((64,), name="pixels")
        hidden = tf.keras.layers.Dense(128, activation="relu")(pixels)
        hidden = tf.keras.layers.Dense(128, activation="relu")(hidden)
        model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))
        model.compile(tf.keras.optimizers.Adam(0.002), "sparse_categorical_crossentropy", ["accuracy"])
    began = time.monotonic()
    model.fit(dataset, steps_per_epoch=steps, verbose=0)
    print(f"seconds {time.monotonic() - began}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
