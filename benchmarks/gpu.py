"""Compares our training on a GPU with Keras's `fit` and a hand-written loop.

    python benchmarks/gpu.py [--seconds N] [--output FILE] [--rehearse]

All three train the models of `gpu_models.py` with the same optimizer, batch, metrics
and shards under OneDeviceStrategy, in Keras 2, one after the other. Ours is a training
by the local launcher. `fit` has as many steps per execution as ours, and the loop as
many in a TensorFlow call. These two read with `tf.data` as one does by hand, and are in
one process, which waits while ours trains.

Each figure is the median of epochs of about 0.7 s, after a first one. `input` is the
share of these epochs in which our steps waited for batches. `alone` is the speed of our
input pipeline without a model, on this machine's cores, relative to our training.

Prints each row once it is known, and writes all of them as JSON, from which `make
generated` makes a table in docs/benchmarks.md. The most telling rows come first. None
starts that would end after --seconds, if it took as long as the model's longest, so the
last ones of `CASES` may be missing.

With --rehearse, sizes are tiny, the device is the CPU, mixed_float16 becomes
mixed_bfloat16, and the figures mean nothing.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

import gpu_models
import tensorflow as tf
from bare_fit import make_run_steps
from data import measure_rate
from training import TrainingCluster

from tfx_distribute.components.launchers.local.fork_client import ForkServer
from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.job import training_job
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.reporting import history

ROOT = Path(__file__).resolve().parents[1]
EPOCHS, EPOCH_SECONDS = 5, 0.7
_FIRST = """dense float32 1, dense float32 100, conv mixed_float16 10, recommender float32 10, dense float32 10,
recommender float32 1, conv float32 10, recommender mixed_float16 10, conv mixed_float16 1"""
_ALL = itertools.product(("dense", "conv", "recommender"), ("mixed_float16", "float32"), ("100", "10", "1"))
# Model, precision, and steps of a TensorFlow call.
CASES = list(dict.fromkeys([*(tuple(case.split()) for case in _FIRST.split(",")), *_ALL]))
# Columns of the table and their formats.
COLUMNS = {"model": "<13", "precision": "<14", "steps a call": ">13", "ours": ">9.1f", "fit": ">9.1f", "loop": ">9.1f"}
COLUMNS |= {"ours/fit": ">10.2f", "ours/loop": ">11.2f", "input": ">8.1%", "alone": ">8.1f"}


@contextlib.contextmanager
def printing_errors() -> Iterator[None]:
    """Prints an error within the block: the other figures are measured all the same."""
    try:
        yield
    except Exception:
        traceback.print_exc()


def rate(times: list[float], steps: int) -> float:
    """Returns steps per second from the times at the ends of epochs."""
    return steps / statistics.median(end - begin for begin, end in itertools.pairwise(times))


def measure_loop(model: tf.keras.Model, strategy: tf.distribute.Strategy, data: Any, call: int) -> tuple[int, float]:
    """Returns the steps of an epoch, and steps per second of a hand-written loop."""
    run_steps = make_run_steps(model, strategy)
    iterator, count = iter(strategy.experimental_distribute_dataset(data)), tf.constant(call)

    def run_epoch(calls: int) -> float:
        """Returns the time at which the device has done the steps."""
        for _ in range(calls):
            run_steps(iterator, count)
        for metric in model.metrics:
            metric.result().numpy()
        model.reset_metrics()
        return time.monotonic()

    calls, begin, end = 1, 0.0, run_epoch(1)
    while calls == 1 or end - begin < EPOCH_SECONDS / 4:
        calls, begin = 2 * calls, time.monotonic()
        end = run_epoch(calls)
    calls = max(1, round(calls * EPOCH_SECONDS / (end - begin)))
    return calls * call, rate([run_epoch(calls) for _ in range(EPOCHS)], calls * call)


def serve_baselines(rehearse: bool) -> None:
    """Answers with the device's name, then with the rates of each case from stdin."""
    gpus = tf.config.list_physical_devices("GPU")
    if not (gpus or rehearse):
        sys.exit("TensorFlow sees no GPU; --rehearse uses the CPU")
    device = "CPU:0" if rehearse else "GPU:0"
    with tf.device(device):
        tf.matmul(tf.ones([8, 8]), tf.ones([8, 8])).numpy()
    name = "CPU" if rehearse else tf.config.experimental.get_device_details(gpus[0])["device_name"]
    print(json.dumps({"device": name}), flush=True)
    strategy = tf.distribute.OneDeviceStrategy(device)
    for line in sys.stdin:
        model, precision, call, files, size = json.loads(line)
        size = gpu_models.Size(*size)
        tf.keras.mixed_precision.set_global_policy(precision)
        context = SimpleNamespace(hparams={"model": model, "width": size.width, "steps_per_execution": call})
        data, steps, rates = gpu_models.make_dataset(model, size, files), 10 * call, {"fit": math.nan, "loop": math.nan}
        with printing_errors(), strategy.scope():
            built = gpu_models.build_model(context)
            steps, rates["loop"] = measure_loop(built, strategy, data, call)
        with printing_errors(), strategy.scope():
            built, epochs = gpu_models.build_model(context), gpu_models.EpochTimes()
            built.fit(data, epochs=EPOCHS, steps_per_epoch=steps, verbose=0, callbacks=[epochs])
            rates["fit"] = rate(epochs.times, steps)
        print(json.dumps({"steps": steps, "rates": rates}), flush=True)


def read_answer(baselines: Any) -> dict[str, Any]:
    """Returns the next answer of the process that runs `serve_baselines`."""
    for line in baselines.stdout:
        if line.startswith("{"):  # a library may print too
            return dict(json.loads(line))
    sys.exit("the process of fit and the loop has ended")


class Ours:
    """Our training of one model, and its data."""

    def __init__(self, model: str, size: gpu_models.Size, folder: Path, server: ForkServer, rehearse: bool):
        self.files = gpu_models.write(model, size, folder)
        num_bytes = sum(os.path.getsize(file) for file in self.files)
        split = training_job.Split(tuple(self.files), size.examples, num_bytes, sharded=True)
        self._job = training_job.TrainingJob(
            training_job.UserModule(f"{model}_module.build_model", (str(folder), str(ROOT / "benchmarks"))),
            training_job.TrainingData(split, None, "label", None, str(folder / f"{model}.pbtxt")),
            training_job.Distribution("one_device", accelerator_type="cpu" if rehearse else "gpu"),
            training_job.TrainingOptions(size.batch, train_steps=1, drop_remainder=True),
            training_job.Outputs("", "", ""),
            hparams={"model": model, "width": size.width},
        )
        self._folder, self._server = folder, server

    def measure_input(self) -> float:
        """Returns batches per second of the input pipeline alone."""
        data, options = self._job.data, self._job.training_options
        features = Features(data, example_functions.load(self._job.module))
        plan = make_plan(options, data.train.num_examples, 1)
        pipeline = InputPipeline(data, features, options, self._job.input_options, plan, 1, 1)
        batch = options.per_replica_batch_size
        return measure_rate(lambda: pipeline.train(tf.distribute.InputContext()), batch, 1.0)["rate"] / batch

    def measure(self, precision: str, call: int, steps: int) -> tuple[float, float]:
        """Returns steps per second, and the share of time that steps wait for input."""
        run = Path(tempfile.mkdtemp(dir=self._folder))
        lengths = {"train_steps": EPOCHS * steps, "steps_per_epoch": steps, "steps_per_execution": call}
        options = replace(self._job.training_options, precision=precision, **lengths)
        outputs = training_job.Outputs("", str(run), str(run / "result.json"))
        TrainingCluster(self._job, run, self._server).train(None, options, outputs=outputs)
        first, *_, last = (record.seconds for record in history.read(str(run)) if record.phase == "epoch")
        spent = {name: seconds - first.get(name, 0.0) for name, seconds in last.items()}
        return rate(json.loads((run / "times.json").read_text()), steps), spent["input"] / sum(spent.values())


def measure_all(options: Any, began: float, folder: Path, baselines: Any, server: ForkServer) -> None:
    """Prints and writes the rows."""
    document: dict[str, Any] = {**read_answer(baselines), "rehearsal": options.rehearse}
    document |= {"tensorflow": tf.__version__, "cores": len(os.sched_getaffinity(0)), "rows": []}
    print(f"{document['device']}, TensorFlow {tf.__version__}, {document['cores']} cores; steps per second\n")
    print("".join(f"{name:{column.split('.')[0]}}" for name, column in COLUMNS.items()), flush=True)
    tf.config.set_visible_devices([], "GPU")  # this process only reads
    trainings: dict[str, Ours] = {}
    inputs: dict[str, float] = {}
    longest: dict[str, float] = {}
    for model, precision, words in CASES:
        row_began, call = time.monotonic(), int(words)
        if row_began - began + longest.get(model, 0.0) > options.seconds:
            continue
        if options.rehearse:  # TensorFlow's float16 on a CPU is not what is measured
            precision = precision.replace("_float16", "_bfloat16")
        size = (gpu_models.REHEARSAL_SIZES if options.rehearse else gpu_models.SIZES)[model]
        if model not in trainings:
            trainings[model] = Ours(model, size, folder, server, options.rehearse)
            inputs[model] = trainings[model].measure_input()
        print(json.dumps([model, precision, call, trainings[model].files, size]), file=baselines.stdin, flush=True)
        answer = read_answer(baselines)
        ours = share = math.nan
        with printing_errors():
            ours, share = trainings[model].measure(precision, call, answer["steps"])
        row = {"device": document["device"], "model": model, "precision": precision, "steps a call": call, "ours": ours}
        row |= {**answer["rates"], **{f"ours/{name}": ours / other for name, other in answer["rates"].items()}}
        row |= {"input": share, "alone": inputs[model] / ours}
        document["rows"].append(row)
        print("".join(f"{row[name]:{column}}" for name, column in COLUMNS.items()), flush=True)
        if options.output:
            options.output.write_text(json.dumps(document, indent=1) + "\n")
        longest[model] = max(longest.get(model, 0.0), time.monotonic() - row_began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=230, help="time for all rows")
    parser.add_argument("--output", type=Path, help="JSON file; default: benchmarks/gpu.json, or none for a rehearsal")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--baselines", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.baselines:
        serve_baselines(options.rehearse)
        os._exit(0)  # closing iterators takes seconds
    if not (options.rehearse or options.output):
        options.output = ROOT / "benchmarks" / "gpu.json"
    began = time.monotonic()
    command = [sys.executable, __file__, "--baselines", *(["--rehearse"] if options.rehearse else [])]
    with contextlib.ExitStack() as stack:
        baselines = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(ForkServer(folder / "fork-server.log"))
        measure_all(options, began, folder, baselines, server)


if __name__ == "__main__":
    main()
