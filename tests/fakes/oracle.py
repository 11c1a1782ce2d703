"""Compares models that are trained with Keras's `fit` and with the loop.

    python tests/fakes/oracle.py --keras 2 --cells default mirrored:dense,embedding
    python tests/fakes/oracle.py --keras 2 --update

Both see the same examples in the same order. Imports TensorFlow once, forks a process
for each task of each strategy, and writes one JSON object: for each cell
`kind/strategy`, the largest differences, the reason of a refusal, or the error.
Without `--cells`, these are all kinds under all strategies of that Keras. `--update`
writes the verdicts for the installed TFX to tests/expected/models.json, and
docs/models.md.

The loop trains each cell twice:

* First with any number of steps in each TensorFlow call. Training fails at the end of
  the second epoch.
* Then with one step in each call, because a callback has batch hooks. Training resumes
  from the saved state, in the middle of the second epoch, with a new model.

With `--resumed`, this is so for some kinds; others are trained to the end the first
time.
"""

import argparse
import faulthandler
import json
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import kind_exceptions
from running import free_ports

# Strategy -> parameters of its distribution, on one machine without GPUs.
STRATEGIES = {
    "default": {},
    "one_device": {},
    "mirrored": {"accelerator_count": 2},
    "multi_worker_mirrored": {"num_workers": 2},
    "central_storage": {"accelerator_count": 2},
    "parameter_server": {},
    "model_parallel": {"mesh": "2x2", "layout_rules": "kernel = model, unsharded"},
}
SERVED = "served"  # the column of exported models
# Strategy -> roles of its processes, where there are several.
ROLES = {
    "multi_worker_mirrored": ("chief", "worker"),
    "parameter_server": ("chief", "worker", "ps"),
}
EPOCHS, BATCH = 3, 8
SAVED_EVERY = 5  # training steps; the last save is in the middle of the second epoch
LIMIT_SECONDS = 800.0  # for all cells of a strategy
# Largest differences that count as none. The replicas' sums have another order, which
# changes a few units in the last place after twelve steps.
WEIGHTS_WITHIN, LOGS_WITHIN = 2e-5, 2e-4


@dataclass(frozen=True)
class Outcome:
    """The result of one cell.

    Attributes:
      weights: The largest difference of a weight from that under `fit`, relative to the
        largest weight.
      logs: The largest relative difference of a logged value.
      trace: The first difference between the two traces of callbacks; empty if they are
        equal.
      refused: The reason why the loop refused to train the cell, or empty.
      not_compared: The reason why there is nothing to compare with, or empty.
      error: The error that was raised, or empty.
    """

    weights: float = 0.0
    logs: float = 0.0
    trace: str = ""
    refused: str = ""
    not_compared: str = ""
    error: str = ""


class InterruptionError(Exception):
    """Raised by a callback."""


@dataclass(frozen=True)
class Training:
    """Results of a training.

    Attributes:
      weights: The weights of the model; None if the training was interrupted.
      calls: The traced calls of callbacks.
      logs: Epoch -> name -> logged value.
    """

    weights: list | None
    calls: list
    logs: dict


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
    return [trace] if kind.startswith("schedule") else [trace, make_decay()]


def as_fit_takes(batch):
    """Returns features alone as they are, not in a tuple."""
    return batch if len(batch) > 1 else batch[0]


def has_fixed_batches(kind: str, strategy_name: str) -> bool:
    """Returns True if all batches of a cell have the same size, under `fit` too."""
    from tfx_distribute.trainer_module.job.strategy_info import strategy_named

    info = strategy_named(strategy_name)
    drops_remainder = kind_exceptions.OPTIONS.get(kind, {}).get("drop_remainder", False)
    return bool(info.fixed_batches) or drops_remainder


def reference_name(kind: str, drop_remainder: bool) -> str:
    """Returns the name of the file with the result of `fit` that a kind needs."""
    return f"fit-{kind_exceptions.REFERENCES.get(kind, kind)}{'-fixed' * drop_remainder}"


class Cells:
    """Trains the cells of one strategy in one of its processes."""

    def __init__(self, data, keras_version: int, resumed: list[str], distribution, strategy, is_chief: bool, folder: Path):
        self.data, self.keras, self.resumed, self.folder = data, keras_version, resumed, folder
        self.distribution, self.strategy, self.is_chief = distribution, strategy, is_chief

    def job(self, kind: str, batch: int, name: str, **changes):
        import kinds

        from tfx_distribute.trainer_module.job.training_job import (
            FaultTolerance,
            Outputs,
            TrainingJob,
            TrainingOptions,
            UserModule,
        )

        for function in ("decode_features", "augment"):
            setattr(sys.modules["kinds"], function, kinds.FUNCTIONS.get(kind, {}).get(function))
        data = dict(kind_exceptions.DATA.get(kind, {}))
        if "schema" in data:
            data["schema"] = str(Path(self.data.schema).parent / data["schema"])
        folder = self.folder / name
        options = {**kind_exceptions.OPTIONS.get(kind, {}), **changes}
        batch //= options.get("gradient_accumulation_steps", 1)
        distribution = self.distribution
        if options.get("precision") == "mixed_float16":
            distribution = replace(distribution, accelerator_type="auto")  # a CPU that is asked for is refused
        return TrainingJob(
            UserModule(f"kinds.{kind}", (str(Path(__file__).parent),)),
            replace(self.data, **data),
            distribution,
            TrainingOptions(batch, keras_version=self.keras, seed=7, **{"epochs": EPOCHS, **options}),
            Outputs(str(folder / "model"), "", "", str(folder / "state")),
            fault_tolerance=FaultTolerance(save_checkpoints_secs=0, save_checkpoints_steps=SAVED_EVERY),
        )

    def fit(self, kind: str, drop_remainder: bool) -> Training:
        """Trains with `fit` on one device.

        Args:
          kind: The kind of model.
          drop_remainder: True for batches of the same size.
        """
        import kinds
        import tensorflow as tf

        from tfx_distribute.trainer_module.data import example_functions
        from tfx_distribute.trainer_module.data.feature_specs import Features
        from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
        from tfx_distribute.trainer_module.job.step_plan import make_plan
        from tfx_distribute.trainer_module.keras.keras_models import input_names
        from tfx_distribute.trainer_module.loop import model_builder

        tf.keras.mixed_precision.set_global_policy("float32")
        job = self.job(kind, BATCH, "fit", drop_remainder=drop_remainder)
        features = Features(job.data, example_functions.load(job.module))
        plan = make_plan(job.training_options, job.data.train.num_examples, 1)
        model = model_builder.build(job, model_builder.make_context(job, features, plan, True)).model
        read = features if isinstance(model, kinds._Table) else features.select(input_names(model, features))
        input_pipeline = InputPipeline(job.data, read, job.training_options, job.input_options, plan, readers=1, batches=1)
        evaluation = input_pipeline.evaluation(tf.distribute.InputContext(), 1).take(input_pipeline.eval_steps(1))
        trace = make_trace(batches=True)
        model.fit(
            input_pipeline.train(tf.distribute.InputContext()).map(lambda batch, share: as_fit_takes(batch)),
            epochs=EPOCHS,
            steps_per_epoch=plan.steps_per_epoch,
            validation_data=evaluation.map(lambda *batch: as_fit_takes(batch[0] if isinstance(batch[0], tuple) else batch)),
            callbacks=callbacks(kind, trace),
            verbose=0,
        )
        return Training(model.get_weights(), trace.calls, trace.epochs)

    def loop(self, kind: str, name: str, batches: bool, fails_after_epoch: int | None = None) -> Training:
        """Trains with the loop.

        Args:
          kind: The kind of model.
          name: Name of the folder for the training's state.
          batches: True for one step in each TensorFlow call.
          fails_after_epoch: Number of an epoch at whose end the training is
            interrupted, if any.

        Raises:
          ConfigurationError: The product refuses to train the cell.
        """
        import tensorflow as tf

        from tfx_distribute.trainer_module.data import example_functions
        from tfx_distribute.trainer_module.data.feature_specs import Features
        from tfx_distribute.trainer_module.job import strategy_table
        from tfx_distribute.trainer_module.loop import training_loop
        from tfx_distribute.trainer_module.reporting.progress import Reporter

        tf.keras.mixed_precision.set_global_policy("float32")
        fixed_batches = has_fixed_batches(kind, self.distribution.strategy)
        job = self.job(kind, BATCH // self.strategy.num_replicas_in_sync, name, drop_remainder=fixed_batches)
        strategy_table.check(job.distribution, job.training_options, job.input_options, job.fault_tolerance)
        trace = make_trace(batches, fails_after_epoch)
        user_module = sys.modules["kinds"]
        user_module.callbacks = lambda context: callbacks(kind, trace)
        reporter = Reporter(os.devnull)
        try:
            model, _ = training_loop.train(
                job, job.data, Features(job.data, example_functions.load(job.module)), self.strategy, reporter, self.is_chief
            )
        except InterruptionError:
            return Training(None, trace.calls, trace.epochs)
        return Training(model.get_weights(), trace.calls, trace.epochs)

    def serve(self, kind: str) -> Outcome:
        """Exports a model after one step, and asks it as the Trainer does."""
        import tensorflow as tf

        from tfx_distribute.trainer_module import asking, export
        from tfx_distribute.trainer_module.data import example_functions
        from tfx_distribute.trainer_module.data.feature_specs import Features
        from tfx_distribute.trainer_module.errors import ConfigurationError
        from tfx_distribute.trainer_module.loop import training_loop
        from tfx_distribute.trainer_module.reporting.progress import Reporter

        tf.keras.mixed_precision.set_global_policy("float32")
        job = self.job(kind, BATCH, kind, epochs=0, train_steps=1)
        features = Features(job.data, example_functions.load(job.module))
        try:
            model, _ = training_loop.train(job, job.data, features, self.strategy, Reporter(os.devnull), self.is_chief)
        except ConfigurationError:
            raise
        except Exception as error:
            traceback.print_exc()
            return Outcome(not_compared=f"training raises {type(error).__name__}")
        export.export(model, features, job.outputs.serving_model_dir)
        questions = export.make_questions(model, features, job.outputs.serving_model_dir, job.data.eval.files)
        return Outcome(error=asking.ask(questions))

    def compare(self, kind: str) -> Outcome:
        """Trains one cell with the loop and compares it with what is expected."""
        if kind in kind_exceptions.NOISY:
            expected = self.loop(kind, f"{kind}-whole", batches=True)
        else:
            reference = self.folder.parent / reference_name(kind, has_fixed_batches(kind, self.distribution.strategy))
            expected = pickle.loads(reference.read_bytes())  # noqa: S301 (written by this test)
        if isinstance(expected, str):
            return Outcome(not_compared=f"`fit` raises {expected}")
        if kind not in self.resumed:
            parts = [(without_batches, self.loop(kind, kind, batches=False))]
        else:
            interrupted = self.loop(kind, kind, batches=False, fails_after_epoch=1)
            if interrupted.weights is not None:
                return Outcome(error="was not interrupted")
            resumed = self.loop(kind, kind, batches=True)
            parts = [(calls_until_interruption, interrupted), (calls_after_resuming, resumed)]
        return differences(expected, parts, kind, self.distribution.info)


def differences(
    expected: Training, parts: list[tuple[Callable[[list], list], Training]], kind: str, strategy_info
) -> Outcome:
    """Compares the weights, logs and traced calls of a cell's training.

    Args:
      expected: The training to compare with.
      parts: The parts of the cell's training, each with a function that selects its
        calls from those of an uninterrupted one with batch hooks.
      kind: The kind of model.
      strategy_info: The row of the strategy table.
    """
    import numpy as np

    weights = parts[-1][1].weights
    if [w.shape for w in expected.weights] != [w.shape for w in weights]:
        return Outcome(error=f"the weights are {[w.shape for w in weights]}, not {[w.shape for w in expected.weights]}")
    if not all(np.isfinite(w).all() for w in (*expected.weights, *weights)):
        return Outcome(error="some weights are not finite")
    largest_weight = max(float(np.max(np.abs(w))) for w in expected.weights)
    weight_difference = max(float(np.max(np.abs(a - b))) for a, b in zip(expected.weights, weights, strict=True))
    ignored_logs = kind_exceptions.IGNORED_LOGS.get(kind, ())
    log_difference = max(compare_logs(expected.logs, part.logs, ignored_logs) for _, part in parts)
    extra_logs = kind_exceptions.EXTRA_LOGS.get(kind, frozenset())
    # Parameter servers call no hooks of them; accumulation has smaller ones.
    ignores_test_batches = "gradient_accumulation_steps" in kind_exceptions.OPTIONS.get(kind, ())
    expected_calls = expected.calls
    if strategy_info.parameter_servers or ignores_test_batches:
        expected_calls = without_test_batches(expected_calls)
    trace = ""
    for select, part in parts:
        calls = without_test_batches(part.calls) if ignores_test_batches else part.calls
        trace = trace or compare_calls(select(expected_calls), calls, extra_logs)
    return Outcome(weight_difference / largest_weight, log_difference, trace)


def compare_calls(expected_calls: list, calls: list, extra_logs=frozenset()) -> str:
    """Returns the first difference between two traces; empty if they are equal.

    Args:
      expected_calls: The calls under `fit`.
      calls: The calls to compare.
      extra_logs: Names of logs that only one of the two may have.
    """
    expected_calls, calls = (
        [(*call[:2], *(sorted(set(names) - extra_logs) for names in call[2:])) for call in both]
        for both in (expected_calls, calls)
    )
    if calls == expected_calls:
        return ""
    pairs = enumerate(zip(expected_calls, calls, strict=False))
    index = next((n for n, (a, b) in pairs if a != b), min(len(expected_calls), len(calls)))
    return f"{index}: {calls[index : index + 2]} instead of {expected_calls[index : index + 2]}"


def without_test_batches(calls: list) -> list:
    return [call for call in calls if not call[0].startswith("test batch")]


def without_batches(calls: list) -> list:
    return [call for call in calls if "batch" not in call[0]]


def verdict(kind: str, outcome: Outcome) -> str:
    """Returns the outcome of a cell in words, without numbers; `same` if as `fit`."""
    import oracle_table

    weights_within, logs_within = kind_exceptions.TOLERANCES.get(kind, (WEIGHTS_WITHIN, LOGS_WITHIN))
    if outcome.refused:
        return f"refused: {outcome.refused}"
    if outcome.not_compared:
        return f"not compared: {outcome.not_compared}"
    if outcome.error:
        return f"fails: {outcome.error.partition(':')[0]}"
    if outcome.trace:
        return "differs: the calls of callbacks"
    if outcome.weights > weights_within:
        return "differs: the weights"
    return "differs: the logged values" if outcome.logs > logs_within else oracle_table.SAME


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


def calls_until_interruption(calls: list) -> list:
    """Returns the calls of a training without batch hooks that ends in epoch 1."""
    end = next(index for index, call in enumerate(calls) if call[:2] == ("epoch end", 1))
    return without_batches(calls[:end])


def calls_after_resuming(calls: list) -> list:
    """Returns the calls of a training that resumes from the last save.

    The epoch of the save begins again, but only its remaining batches follow.
    """
    second_epoch = calls.index(("epoch begin", 1))
    steps_per_epoch = sum(call[0] == "train batch begin" for call in calls[:second_epoch])
    first_new = calls.index(("train batch begin", SAVED_EVERY - steps_per_epoch), second_epoch)
    return [("train begin",), ("epoch begin", 1), *calls[first_new:]]


def run_fit(keras_version: int, references: list[tuple[str, bool]], data, folder: Path) -> None:
    """Trains with `fit` and writes the results, or the names of errors, to files.

    Args:
      keras_version: Generation of Keras.
      references: Kinds, each with True for batches of the same size.
      data: The examples.
      folder: Folder for the results.
    """
    import tensorflow as tf

    from tfx_distribute.trainer_module.job.training_job import Distribution

    cells = Cells(data, keras_version, [], Distribution(), tf.distribute.get_strategy(), True, folder)
    for kind, drop_remainder in references:
        try:
            expected = cells.fit(kind, drop_remainder)
        except Exception as error:
            traceback.print_exc()
            expected = type(error).__name__
        (folder / reference_name(kind, drop_remainder)).write_bytes(pickle.dumps(expected))


def run_task(
    keras_version: int,
    resumed: list[str],
    strategy_name: str,
    kind_names: list[str],
    data,
    folder: Path,
    ports: list[int],
    task: int,
):
    """Trains all cells of a strategy in this process, which is one of its tasks."""
    from tfx_distribute.trainer_module.errors import ConfigurationError
    from tfx_distribute.trainer_module.job.cluster import ClusterTask, is_server
    from tfx_distribute.trainer_module.job.training_job import Distribution
    from tfx_distribute.trainer_module.loop import coordinator_steps
    from tfx_distribute.trainer_module.strategies import factory as strategy_lib

    is_served = strategy_name == SERVED
    distribution = Distribution(accelerator_type="cpu")
    if not is_served:
        distribution = Distribution(strategy_name, accelerator_type="cpu", **STRATEGIES[strategy_name])
    if ports:
        cluster = {role: [f"127.0.0.1:{port}"] for role, port in zip(ROLES[strategy_name], ports, strict=True)}
        role = ROLES[strategy_name][task]
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
        if is_server(distribution, ClusterTask(role, 0)):
            coordinator_steps.serve(ClusterTask(role, 0), distribution)
            return
    strategy = strategy_lib.create(distribution)
    cells = Cells(data, keras_version, resumed, distribution, strategy, task == 0, folder / strategy_name)
    results = {}
    for kind in kind_names:
        started = time.monotonic()
        try:
            outcome = cells.serve(kind) if is_served else cells.compare(kind)
        except ConfigurationError as error:
            outcome = Outcome(refused=str(error))
        except Exception as error:
            traceback.print_exc()
            outcome = Outcome(error=f"{type(error).__name__}: {str(error).strip()[:600]}")
        results[f"{kind}/{strategy_name}"] = {**asdict(outcome), "verdict": verdict(kind, outcome)}
        if task == 0:
            print(f"{time.monotonic() - started:.1f} s", kind, strategy_name, outcome, flush=True)
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


def wait(pids: list[int], seconds: float = LIMIT_SECONDS) -> None:
    """Waits for the first of several forked processes, and then for the others.

    Kills those that still run after the time limit, or ten seconds after the first.
    """
    deadline = time.monotonic() + seconds
    pids, first = list(pids), pids[0]
    while pids and time.monotonic() < deadline:
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
        if first not in pids:
            deadline = min(deadline, time.monotonic() + 10)
        time.sleep(0.05)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keras", type=int, default=2, choices=(2, 3))
    parser.add_argument("--cells", nargs="+", help="strategies, each with a colon and kinds, or all kinds without")
    parser.add_argument("--resumed", nargs="+", help="kinds whose training is interrupted and resumed; all by default")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="most seconds for each strategy")
    parser.add_argument("--out", help="file for the outcomes; standard output shows them too")
    parser.add_argument("--update", action="store_true", help="write the verdicts and docs/models.md")
    arguments = parser.parse_args()
    from tfx_distribute.trainer_module.job.training_job import keras_environment

    os.environ.update(keras_environment(arguments.keras), TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    sys.path.insert(0, str(Path(__file__).parent))
    from tfx_distribute.trainer_module import garbage_collection

    with garbage_collection.paused():  # once, before the forks, as in the fork server
        import oracle_table
        import tensorflow as tf

        from tfx_distribute.trainer_module import process
        from tfx_distribute.trainer_module.loop import autograph

        _ = process
        autograph.exempt_tf_keras()  # as in a training process, before the import of a user's module
        import kinds

    faulthandler.register(signal.SIGUSR1)
    tf.get_logger().setLevel("ERROR")  # suppresses warnings about retracing: each training traces its own functions
    cells = {}
    for cell in arguments.cells or oracle_table.strategies(arguments.keras):
        strategy, _, names = cell.partition(":")
        cells[strategy] = names.split(",") if names else kinds.KINDS
    references = {
        reference_name(kind, has_fixed_batches(kind, strategy)): (
            kind_exceptions.REFERENCES.get(kind, kind),
            has_fixed_batches(kind, strategy),
        )
        for strategy, names in cells.items()
        for kind in names
        if kind not in kind_exceptions.NOISY and strategy != SERVED
    }
    results = {}
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        data = write_examples_in_fork(folder)
        started = time.monotonic()
        wait([fork(run_fit, arguments.keras, list(references.values()), data, folder)], arguments.limit)
        print(f"{time.monotonic() - started:.1f} s", len(references), "trainings with fit", flush=True)
        for strategy, names in cells.items():
            ports = free_ports(len(ROLES.get(strategy, ())))
            task = (arguments.keras, arguments.resumed or kinds.KINDS, strategy, names, data, folder, ports)
            wait([fork(run_task, *task, index) for index in range(len(ports) or 1)], arguments.limit)
            results_file = folder / f"{strategy}.json"
            results.update(json.loads(results_file.read_text()) if results_file.exists() else {})
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(results, indent=1))
    if arguments.update:
        oracle_table.update(arguments.keras, {cell: outcome["verdict"] for cell, outcome in results.items()})


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
