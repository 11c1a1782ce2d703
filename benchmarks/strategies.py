"""Compares each strategy with no strategy, and one worker with two.

    python benchmarks/strategies.py [--pairs N]

Prints two tables:

1. Held-out accuracy on the digits after 15 epochs with a global batch of 64, of a
   compiled model and of a task; and training steps per second of the compiled model.
2. Milliseconds per step of a model whose step takes 50 ms or more: one worker against
   two workers with the same batch each, every worker on its own core. Cores of a
   virtual machine may share computing units, so one worker is also timed while an
   unrelated process trains the same model on the other core. A bare loop, written by
   hand, of the same model on one tensor shows what TensorFlow itself reaches.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import bare_cluster
from faults import STRATEGIES
from training import digits_cluster, write_digits
from training_speed import FEW, HPARAMS, MANY, ROOT

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    TrainingData,
    TrainingOptions,
    TrainingResult,
    UserModule,
)

RULES = "dense/kernel = unsharded, model; dense/bias = model; dense_1/kernel = model, unsharded"
MODEL_PARALLEL = Distribution("model_parallel", mesh="1x2", layout_rules=RULES, accelerator_type="cpu")
MEASURED = STRATEGIES | {"model_parallel": MODEL_PARALLEL}
IN_STEP = ("mirrored", "central_storage", "multi_worker_mirrored")  # whose two replicas share a batch
# A step of a batch of 256 takes 50 ms or more on one core.
LARGE = """
import os
import tensorflow as tf

def build_model(context):
    # Puts the chief on the first core and the worker on the second, with all their threads
    # and later ones.
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {0 if context.is_chief else 1})
    pixels = tf.keras.Input((64,), name="pixels")
    hidden = tf.keras.layers.Reshape((8, 8, 1))(pixels)
    for _ in range(4):
        hidden = tf.keras.layers.Conv2D(48, 3, padding="same", activation="relu")(hidden)
    hidden = tf.keras.layers.GlobalAveragePooling2D()(hidden)
    model = tf.keras.Model({"pixels": pixels}, tf.keras.layers.Dense(10, activation="softmax")(hidden))
    model.compile(tf.keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    return model
"""
WEAK = (10, 110)  # steps that are not timed, and steps in total
BUSY = """
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.sched_setaffinity(0, {1})
sys.path.insert(0, sys.argv[1])
import large, tensorflow as tf

class Context:
    is_chief = False

model = large.build_model(Context)
data = tf.data.Dataset.from_tensors((tf.ones([256, 64]), tf.zeros([256, 1]))).repeat()
print("ready", flush=True)
model.fit(data, steps_per_epoch=10**6, verbose=0)
"""
BY_HAND = """
import os, sys, time
os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.insert(0, sys.argv[1])
few, many = map(int, sys.argv[2:])
import large, tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

class Context:
    is_chief = strategy.cluster_resolver.task_type in (None, "chief")

with strategy.scope():
    model = large.build_model(Context)
    model.optimizer.build(model.trainable_variables)
pixels, labels = tf.ones([256, 64]), tf.zeros([256, 1])

def step():
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(pixels, training=True))
        loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
    variables = model.trainable_variables
    model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

@tf.function
def steps(count):
    for _ in tf.range(count):
        strategy.run(step)

steps(tf.constant(few))
begin = time.monotonic()
steps(tf.constant(many - few))
print("seconds", time.monotonic() - begin)
"""


@contextlib.contextmanager
def other_core_busy(folder: Path) -> Iterator[None]:
    """Trains the same model on the second core during the block, in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        next(iter(process.stdout or ()))
        try:
            yield
        finally:
            process.kill()


def train(
    server: ForkServer,
    folder: Path,
    data: TrainingData,
    distribution: Distribution,
    options: TrainingOptions,
    module: UserModule,
) -> TrainingResult:
    """Trains with our launcher."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        return digits_cluster(Path(run), data, server).train(distribution, options, module=module, hparams=HPARAMS)


def steps_per_second(
    server: ForkServer,
    folder: Path,
    digits: TrainingData,
    distribution: Distribution,
    batch: int,
    module: UserModule,
    few: int,
    many: int,
) -> float:
    """Returns the rate of the steps after the first `few`, in a training of `many`."""
    data = replace(digits, eval=None)
    seconds = [
        train(server, folder, data, distribution, TrainingOptions(batch, train_steps=steps), module).seconds
        for steps in (few, many)
    ]
    return (many - few) / (seconds[1] - seconds[0])


def by_hand(folder: Path, distribution: Distribution) -> float:
    """Returns the milliseconds of a step of the bare loop."""
    return 1000 * bare_cluster.run([folder / "by_hand.py", folder, *map(str, WEAK)], distribution) / (WEAK[1] - WEAK[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    model, task = (UserModule(f"{name}.build_model", (str(ROOT / "examples" / "digits"),)) for name in ("model", "task"))
    with tempfile.TemporaryDirectory() as name, ForkServer(Path(name, "fork-server.log")) as server:
        folder = Path(name)
        (folder / "large.py").write_text(LARGE)
        (folder / "by_hand.py").write_text(BY_HAND)
        large = UserModule("large.build_model", (name,))
        digits = write_digits(folder)
        server.wait_ready()
        print(f"{os.cpu_count()} cores; steps per second, median of {pairs}; ratio to no strategy in the same run\n")
        print(f"{'strategy':<24}{'accuracy, model':>16}{'accuracy, task':>16}{'steps/s':>10}{'ratio':>8}")
        for strategy, distribution in MEASURED.items():
            batch = 32 if strategy in IN_STEP else 64
            accuracies = [
                train(server, folder, digits, distribution, TrainingOptions(batch, epochs=15), module).metrics[
                    "val_accuracy"
                ]
                for module in (model, task)
            ]
            rates = [
                (
                    steps_per_second(server, folder, digits, distribution, batch, model, FEW, MANY),
                    steps_per_second(server, folder, digits, MEASURED["default"], 64, model, FEW, MANY),
                )
                for _ in range(pairs)
            ]
            rate = statistics.median(strategy_rate for strategy_rate, _ in rates)
            ratio = statistics.median(strategy_rate / default_rate for strategy_rate, default_rate in rates)
            print(f"{strategy:<24}{accuracies[0]:>16.3f}{accuracies[1]:>16.3f}{rate:>10.0f}{ratio:>8.2f}", flush=True)
        print("\nweak scaling, 256 examples a worker, ms a step; ratio: rate of two workers / twice that of one\n")
        columns = f"{'one worker':>12}{'one, other core busy':>22}{'two workers':>13}{'ratio':>8}{'ratio to busy':>15}"
        print(f"{columns}{'one, by hand':>14}{'two, by hand':>14}{'ratio':>8}")
        two = MEASURED["multi_worker_mirrored"]
        one = replace(two, num_workers=1)
        for _ in range(pairs):
            alone = 1000 / steps_per_second(server, folder, digits, one, 256, large, *WEAK)
            with other_core_busy(folder):
                busy = 1000 / steps_per_second(server, folder, digits, one, 256, large, *WEAK)
            both = 1000 / steps_per_second(server, folder, digits, two, 256, large, *WEAK)
            hand = [by_hand(folder, workers) for workers in (one, two)]
            print(
                f"{alone:>12.1f}{busy:>22.1f}{both:>13.1f}{alone / both:>8.2f}{busy / both:>15.2f}"
                f"{hand[0]:>14.1f}{hand[1]:>14.1f}{hand[0] / hand[1]:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
