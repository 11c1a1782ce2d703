"""Compares models that are trained with Keras's `fit` and with the loop.

    python tests/fakes/oracle.py --keras 2 --strategies default,mirrored \\
        --kinds dense,embedding --out FILE

Both see the same examples in the same order. Imports TensorFlow once, forks a process
for each task of each strategy, and writes one JSON object: for each cell
`kind/strategy/how`, the largest differences, or the error. The values of `how` are:

* `many`: any number of steps in each TensorFlow call.
* `resumed`: one step in each call. Training fails at the end of the second epoch and
  resumes from the saved state, in the middle of that epoch, with a new model.
"""

import argparse
import faulthandler
import json
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

STRATEGIES = ("default", "mirrored", "multi_worker_mirrored")
EPOCHS, BATCH = 3, 8
SAVED_EVERY = 5  # training steps; the last save is in the middle of the second epoch
LIMIT_SECONDS = 800.0  # for all cells of a strategy


@dataclass(frozen=True)
class Outcome:
    """The result of one cell.

    Attributes:
      weights: The largest difference of a weight from that under `fit`, relative to the
        largest weight.
      logs: The largest relative difference of a logged value.
      trace: The first difference between the two traces of callbacks; empty if they are
        equal.
      error: The error that was raised, or empty.
    """

    weights: float = 0.0
    logs: float = 0.0
    trace: str = ""
    error: str = ""


class InterruptionError(Exception):
    """Raised by a callback."""


def make_trace(batches: bool, fails_after_epoch: int | None = None):
    """Returns a callback that records the calls of its hooks.

    Args:
      batches: True to record batch hooks as well.
      fails_after_epoch: Number of an epoch at whose end the callback raises
        `InterruptionError`, if any.
    """
    import tensorflow as tf

    class Trace(tf.keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.__dict__["calls"] = []
            self.__dict__["epochs"] = {}

        def on_train_begin(self, logs=None):
            self.calls.append(("train begin",))

        def on_train_end(self, logs=None):
            self.calls.append(("train end",))

        def on_epoch_begin(self, epoch, logs=None):
            self.calls.append(("epoch begin", epoch))

        def on_epoch_end(self, epoch, logs=None):
            if epoch == fails_after_epoch:
                raise InterruptionError
            self.calls.append(("epoch end", epoch, sorted(logs)))
            self.epochs[epoch] = {name: float(value) for name, value in logs.items()}

        def on_test_begin(self, logs=None):
            self.calls.append(("test begin",))

        def on_test_end(self, logs=None):
            self.calls.append(("test end",))

    class BatchTrace(Trace):
        def on_train_batch_begin(self, batch, logs=None):
            self.calls.append(("train batch begin", batch))

        def on_train_batch_end(self, batch, logs=None):
            self.calls.append(("train batch end", batch))

        def on_test_batch_begin(self, batch, logs=None):
            self.calls.append(("test batch begin", batch))

        def on_test_batch_end(self, batch, logs=None):
            self.calls.append(("test batch end", batch))

    return (BatchTrace if batches else Trace)()


def make_decay():
    """Returns a callback that derives each learning rate from the previous one.

    If a rate is set twice, the results differ.
    """
    import tensorflow as tf

    return tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)


def callbacks(kind: str, trace) -> list:
    return [trace] if kind == "schedule" else [trace, make_decay()]


class Cells:
    """Trains the cells of one strategy in one of its processes."""

    def __init__(self, data, keras_version: int, distribution, strategy, is_chief: bool, folder: Path):
        self.data, self.keras, self.folder = data, keras_version, folder
        self.distribution, self.strategy, self.is_chief = distribution, strategy, is_chief

    def job(self, kind: str, batch: int, name: str):
        import kinds

        from tfx_distribute.trainer_module.job.training_job import (
            FaultTolerance,
            Outputs,
            TrainingJob,
            TrainingOptions,
            UserModule,
        )

        folder = self.folder / name
        changes = kinds.OPTIONS.get(kind, {})
        batch //= changes.get("gradient_accumulation_steps", 1)
        return TrainingJob(
            UserModule(f"kinds.{kind}", (str(Path(__file__).parent),)),
            self.data,
            self.distribution,
            TrainingOptions(batch, epochs=EPOCHS, keras_version=self.keras, seed=7, **changes),
            Outputs(str(folder / "model"), "", "", str(folder / "state")),
            fault_tolerance=FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=SAVED_EVERY),
        )

    def fit(self, kind: str):
        """Trains with `fit` on one device; returns weights, traced calls and logs."""
        import kinds
        import tensorflow as tf

        from tfx_distribute.trainer_module.data.feature_specs import Features
        from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
        from tfx_distribute.trainer_module.job.step_plan import make_plan
        from tfx_distribute.trainer_module.training import model_builder
        from tfx_distribute.trainer_module.training.model_adapters import input_names

        job = self.job(kinds.REFERENCES.get(kind, kind), BATCH, "fit")
        features = Features(self.data)
        plan = make_plan(job.training_options, self.data.train.num_examples, 1)
        model = model_builder.build(job, model_builder.make_context(job, features, plan, True)).model
        input_pipeline = InputPipeline(
            self.data, features, job.training_options, job.input_options, plan, readers=1, batches=1
        )
        names = features.inputs().keys() if isinstance(model, kinds._Table) else input_names(model, set(features.inputs()))
        select_inputs = lambda x, *rest: ({name: x[name] for name in names}, *rest)  # noqa: E731
        evaluation = input_pipeline.evaluation(tf.distribute.InputContext(), 1).take(input_pipeline.eval_steps(1))
        trace = make_trace(batches=True)
        model.fit(
            input_pipeline.train(tf.distribute.InputContext()).map(lambda batch, share: select_inputs(*batch)),
            epochs=EPOCHS,
            steps_per_epoch=plan.steps_per_epoch,
            validation_data=evaluation.map(
                lambda *batch: select_inputs(*(batch[0] if isinstance(batch[0], tuple) else batch))
            ),
            callbacks=callbacks(kind, trace),
            verbose=0,
        )
        return model.get_weights(), trace.calls, trace.epochs

    def loop(self, kind: str, how: str, batches: bool, fails_after_epoch: int | None = None):
        """Trains with the loop; returns the same as `fit`."""
        from tfx_distribute.trainer_module.data.feature_specs import Features
        from tfx_distribute.trainer_module.lifecycle.progress import Reporter
        from tfx_distribute.trainer_module.training import loop

        job = self.job(kind, BATCH // self.strategy.num_replicas_in_sync, f"{kind}-{how}")
        trace = make_trace(batches, fails_after_epoch)
        user_module = sys.modules["kinds"]
        user_module.callbacks = lambda context: callbacks(kind, trace)
        reporter = Reporter(os.devnull)
        model, _ = loop.train(job, self.data, Features(self.data), self.strategy, reporter, self.is_chief)
        return model.get_weights(), trace.calls, trace.epochs

    def compare(self, kind: str, how: str, expected) -> Outcome:
        """Trains one cell with the loop and compares it with what is expected."""
        batches = how == "resumed"
        if how == "resumed":
            try:
                self.loop(kind, how, batches, fails_after_epoch=1)
            except InterruptionError:
                pass
            else:
                raise AssertionError("was not interrupted")
        return differences(expected, self.loop(kind, how, batches), kind, how)


def differences(expected, actual, kind: str, how: str) -> Outcome:
    """Compares the weights, logs and traced calls of two trainings of one cell."""
    import kinds
    import numpy as np

    (expected_weights, expected_calls, expected_logs), (weights, calls, logs) = expected, actual
    if [w.shape for w in expected_weights] != [w.shape for w in weights]:
        return Outcome(error=f"the weights are {[w.shape for w in weights]}, not {[w.shape for w in expected_weights]}")
    if not all(np.isfinite(w).all() for w in (*expected_weights, *weights)):
        return Outcome(error="some weights are not finite")
    largest_weight = max(float(np.max(np.abs(w))) for w in expected_weights)
    weight_difference = max(float(np.max(np.abs(a - b))) for a, b in zip(expected_weights, weights, strict=True))
    log_difference = compare_logs(expected_logs, logs, kinds.IGNORED_LOGS.get(kind, ()))
    extra_logs = kinds.EXTRA_LOGS.get(kind, set())
    expected_calls, calls = (
        [(*call[:2], *(sorted(set(names) - extra_logs) for names in call[2:])) for call in both]
        for both in (expected_calls, calls)
    )
    if "gradient_accumulation_steps" in kinds.OPTIONS.get(kind, ()):  # evaluation batches are smaller, too
        expected_calls, calls = (
            [call for call in both if not call[0].startswith("test batch")] for both in (expected_calls, calls)
        )
    if how == "many":
        expected_calls = [call for call in expected_calls if "batch" not in call[0]]
    if how == "resumed":
        expected_calls = calls_after_resuming(expected_calls)
    if calls == expected_calls:
        trace = ""
    else:
        pairs = enumerate(zip(expected_calls, calls, strict=False))
        index = next((n for n, (a, b) in pairs if a != b), min(len(expected_calls), len(calls)))
        trace = f"{index}: {calls[index : index + 2]} instead of {expected_calls[index : index + 2]}"
    return Outcome(weight_difference / largest_weight, log_difference, trace)


def compare_logs(expected_logs, logs, ignored_names) -> float:
    """Returns the largest relative difference of a logged value in any epoch."""
    import numpy as np

    largest = 0.0
    for epoch, values in logs.items():
        for name, value in values.items():
            if name in expected_logs[epoch] and name not in ignored_names:
                expected = expected_logs[epoch][name]
                difference = abs(value - expected) / max(abs(expected), 1e-3)
                largest = max(largest, difference if np.isfinite(value) else 1e9)
    return largest


def calls_after_resuming(calls: list) -> list:
    """Returns the calls of a training that resumes from the last save.

    The epoch of the save begins again, but only its remaining batches follow.
    """
    second_epoch = calls.index(("epoch begin", 1))
    steps_per_epoch = sum(call[0] == "train batch begin" for call in calls[:second_epoch])
    first_new = calls.index(("train batch begin", SAVED_EVERY - steps_per_epoch), second_epoch)
    return [("train begin",), ("epoch begin", 1), *calls[first_new:]]


def run_fit(keras_version: int, kind_names: list[str], data, folder: Path) -> None:
    """Trains each kind with `fit` and writes the results to files."""
    import kinds
    import tensorflow as tf

    from tfx_distribute.trainer_module.job.training_job import Distribution
    from tfx_distribute.trainer_module.training import autograph

    autograph.exempt_tf_keras()
    cells = Cells(data, keras_version, Distribution(), tf.distribute.get_strategy(), True, folder)
    for kind in kind_names:
        if kind not in kinds.NOISY:
            try:
                expected = cells.fit(kind)
            except Exception:
                traceback.print_exc()
                continue
            (folder / f"fit-{kind}").write_bytes(pickle.dumps(expected))


def run_task(keras_version: int, strategy_name: str, kind_names: list[str], data, folder: Path, ports: list[int], task: int):
    """Trains all cells of a strategy in this process, which is one of its tasks."""
    import kinds

    from tfx_distribute.trainer_module.job.training_job import Distribution
    from tfx_distribute.trainer_module.strategies import factory as strategy_lib
    from tfx_distribute.trainer_module.training import autograph

    workers, devices = (2, 0) if ports else (1, 2 if strategy_name == "mirrored" else 0)
    if ports:
        role = {"type": "chief" if task == 0 else "worker", "index": 0}
        hosts = [f"127.0.0.1:{port}" for port in ports]
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"chief": hosts[:1], "worker": hosts[1:]}, "task": role})
    autograph.exempt_tf_keras()
    distribution = Distribution(strategy_name, num_workers=workers, accelerator_type="cpu", accelerator_count=devices)
    strategy = strategy_lib.create(distribution)
    cells = Cells(data, keras_version, distribution, strategy, task == 0, folder / strategy_name)
    results = {}
    for kind in kind_names:
        reference = folder / f"fit-{kind}"
        for how in ("many", "resumed"):
            try:
                if kind in kinds.NOISY:
                    expected = cells.loop(kind, f"{how}-whole", batches=True)
                else:
                    expected = pickle.loads(reference.read_bytes())  # noqa: S301 (written by this test)
                outcome = cells.compare(kind, how, expected)
            except Exception as error:
                traceback.print_exc()
                outcome = Outcome(error=f"{type(error).__name__}: {str(error).strip()[:600]}")
            results[f"{kind}/{strategy_name}/{how}"] = asdict(outcome)
            if task == 0:
                print(kind, strategy_name, how, outcome, flush=True)
                (folder / f"{strategy_name}.json").write_text(json.dumps(results))


def fork(function, *arguments) -> int:
    """Runs a function in a forked process; returns the process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(pids: list[int]) -> None:
    """Waits for forked processes; kills those still running after `LIMIT_SECONDS`."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while pids and time.monotonic() < deadline:
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keras", type=int, default=2)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--kinds", default="")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    from tfx_distribute.trainer_module.job.training_job import keras_environment

    os.environ.update(keras_environment(arguments.keras), TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    sys.path.insert(0, str(Path(__file__).parent))
    import kinds
    import tensorflow as tf

    from tfx_distribute.trainer_module import process  # imported once, before the forks

    _ = process
    faulthandler.register(signal.SIGUSR1)
    tf.get_logger().setLevel("ERROR")  # suppresses warnings about retracing: each training traces its own functions
    kind_names = arguments.kinds.split(",") if arguments.kinds else kinds.KINDS
    results = {}
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        data = write_examples_in_fork(folder)
        wait([fork(run_fit, arguments.keras, kind_names, data, folder)])
        for strategy in arguments.strategies.split(","):
            ports = free_ports(2) if strategy == "multi_worker_mirrored" else []
            cells = (arguments.keras, strategy, kind_names, data, folder, ports)
            wait([fork(run_task, *cells, task) for task in range(len(ports) or 1)])
            results_file = folder / f"{strategy}.json"
            results.update(json.loads(results_file.read_text()) if results_file.exists() else {})
    Path(arguments.out).write_text(json.dumps(results, indent=1))


def write_examples_in_fork(folder: Path):
    """Calls `write_examples` in a forked process.

    Later forks need a TensorFlow that has not run any operation in this one.
    """
    from oracle_examples import write_examples
    from pydantic import TypeAdapter

    from tfx_distribute.trainer_module.job.training_job import TrainingData

    adapter = TypeAdapter(TrainingData)
    wait([fork(lambda: (folder / "data.json").write_bytes(adapter.dump_json(write_examples(folder))))])
    return adapter.validate_json((folder / "data.json").read_bytes())


if __name__ == "__main__":
    main()
