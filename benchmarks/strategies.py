"""Each strategy against no strategy on the same global batch, and from one worker to two with one core each.

    python benchmarks/strategies.py [--pairs N]

Prints two tables. The first: held-out accuracy on the digits after 15 epochs with a global batch of 64, of a compiled model
and of a task, and training steps per second of the compiled model. The second: examples per second of a model whose step
takes 50 ms or more, one worker against two workers with the same batch each, every worker on a core of its own. Cores of a
virtual machine may share what they compute with: so one worker is also timed while the other core trains the same model by
itself.
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

from training_speed import FEW, MANY, ROOT, SCHEMA, write_digits

from tfx_distribute.components.launchers import local
from tfx_distribute.components.launchers.fork_server import ForkServer
from tfx_distribute.trainer_module.job import (
    Data,
    Distribution,
    Outputs,
    Schedule,
    Split,
    TrainingJob,
    TrainingResult,
    UserModule,
)

RULES = "dense/kernel = unsharded, model; dense/bias = model; dense_1/kernel = model, unsharded"
# Strategy -> its distribution, and the batch of one replica for a global batch of 64.
SHAPES = {
    "default": (Distribution("default", accelerator_type="cpu"), 64),
    "one_device": (Distribution("one_device", accelerator_type="cpu"), 64),
    "mirrored": (Distribution("mirrored", accelerator_type="cpu", accelerator_count=2), 32),
    "central_storage": (Distribution("central_storage", accelerator_type="cpu", accelerator_count=2), 32),
    "multi_worker_mirrored": (Distribution("multi_worker_mirrored", num_workers=2, accelerator_type="cpu"), 32),
    "parameter_server": (Distribution("parameter_server", num_workers=2, accelerator_type="cpu"), 64),
    "model_parallel": (Distribution("model_parallel", mesh="1x2", layout_rules=RULES, accelerator_type="cpu"), 64),
}
# A step of a batch of 256 takes 50 ms or more on one core.
LARGE = """
import os
import tensorflow as tf

def build_model(context):
    # Each process on a core of its own, the chief on the first, the worker on the second: all its threads, and later ones.
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
WEAK = (10, 110)  # steps that are not timed, and steps in all
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


@contextlib.contextmanager
def other_core_busy(folder: Path) -> Iterator[None]:
    """Trains the same model on the second core meanwhile, in a process that has nothing to do with ours."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        next(iter(process.stdout or ()))
        try:
            yield
        finally:
            process.kill()


def train(
    server: ForkServer, folder: Path, distribution: Distribution, schedule: Schedule, module: UserModule, evaluate: bool
) -> TrainingResult:
    """Trains under our launcher."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        train_split = Split((str(folder / "train.gz"),), 1400)
        eval_split = Split((str(folder / "eval.gz"),), 397)
        job = TrainingJob(
            module=module,
            data=Data(train_split, eval_split if evaluate else None, "digit", None, str(folder / "schema.pbtxt")),
            distribution=distribution,
            schedule=schedule,
            outputs=Outputs(f"{run}/model", f"{run}/run", f"{run}/result.json"),
            hparams={"hidden_units": 128, "learning_rate": 0.002},
        )
        quiet = local.LocalSettings(log_dir=Path(run, "logs"), server=server, on_progress=lambda task, progress: None)
        with local.settings(quiet):
            return local.launch(job, run)


def steps_per_second(
    server: ForkServer, folder: Path, distribution: Distribution, batch: int, module: UserModule, few: int, many: int
) -> float:
    """Of the steps after the first `few`."""
    took = [
        train(server, folder, distribution, Schedule(batch, train_steps=steps), module, evaluate=False).seconds
        for steps in (few, many)
    ]
    return (many - few) / (took[1] - took[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    pairs = parser.parse_args().pairs
    model, task = (UserModule(f"{name}.build_model", (str(ROOT / "examples" / "digits"),)) for name in ("model", "task"))
    with tempfile.TemporaryDirectory() as name, ForkServer(Path(name, "fork-server.log")) as server:
        folder = Path(name)
        (folder / "schema.pbtxt").write_text(SCHEMA)
        (folder / "large.py").write_text(LARGE)
        large = UserModule("large.build_model", (name,))
        write_digits(folder / "train.gz", 0, 1400)
        write_digits(folder / "eval.gz", 1400, 1797)
        server.wait_ready()
        print(f"{os.cpu_count()} cores; steps per second, median of {pairs}; ratio to no strategy in the same run\n")
        print(f"{'strategy':<24}{'accuracy, model':>16}{'accuracy, task':>16}{'steps/s':>10}{'ratio':>8}")
        for strategy, (distribution, batch) in SHAPES.items():
            accuracies = [
                train(server, folder, distribution, Schedule(batch, epochs=15), module, evaluate=True).metrics[
                    "val_accuracy"
                ]
                for module in (model, task)
            ]
            rates = [
                (
                    steps_per_second(server, folder, distribution, batch, model, FEW, MANY),
                    steps_per_second(server, folder, *SHAPES["default"], model, FEW, MANY),
                )
                for _ in range(pairs)
            ]
            rate = statistics.median(own for own, _ in rates)
            ratio = statistics.median(own / plain for own, plain in rates)
            print(f"{strategy:<24}{accuracies[0]:>16.3f}{accuracies[1]:>16.3f}{rate:>10.0f}{ratio:>8.2f}", flush=True)
        print("\nweak scaling, 256 examples a worker, ms a step; ratio: rate of two workers / twice that of one\n")
        print(f"{'one worker':>12}{'one, other core busy':>22}{'two workers':>13}{'ratio':>8}{'ratio to busy':>15}")
        one = replace(SHAPES["multi_worker_mirrored"][0], num_workers=1)
        two = SHAPES["multi_worker_mirrored"][0]
        for _ in range(pairs):
            alone = 1000 / steps_per_second(server, folder, one, 256, large, *WEAK)
            with other_core_busy(folder):
                busy = 1000 / steps_per_second(server, folder, one, 256, large, *WEAK)
            both = 1000 / steps_per_second(server, folder, two, 256, large, *WEAK)
            print(f"{alone:>12.1f}{busy:>22.1f}{both:>13.1f}{alone / both:>8.2f}{busy / both:>15.2f}", flush=True)


if __name__ == "__main__":
    main()
