"""Trains models of each kind with Keras's `fit` and with the loop.

Import this after the generation of Keras is set in the environment. `oracle.py` calls
its functions in forked processes.
"""

import json
import os
import pickle
import sys
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path

import kind_exceptions
import kinds
import tensorflow as tf
from oracle_outcomes import (
    BATCH,
    EPOCHS,
    ROLES,
    SAVED_EVERY,
    SERVED,
    STRATEGIES,
    Outcome,
    Training,
    calls_after_resuming,
    calls_until_interruption,
    differences,
    has_fixed_batches,
    reference_name,
    verdict,
    without_batches,
)

from tfx_distribute.trainer_module import asking, export
from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.data.input_pipeline import InputPipeline
from tfx_distribute.trainer_module.errors import ConfigurationError
from tfx_distribute.trainer_module.job import strategy_table
from tfx_distribute.trainer_module.job.cluster import ClusterTask, is_server
from tfx_distribute.trainer_module.job.step_plan import make_plan
from tfx_distribute.trainer_module.job.training_job import (
    Distribution,
    FaultTolerance,
    Outputs,
    TrainingJob,
    TrainingOptions,
    UserModule,
)
from tfx_distribute.trainer_module.keras.keras_models import input_names
from tfx_distribute.trainer_module.loop import coordinator_steps, model_builder, training_loop
from tfx_distribute.trainer_module.reporting.progress import Reporter
from tfx_distribute.trainer_module.strategies import factory


class InterruptionError(Exception):
    """Raised by a callback."""


class Trace(tf.keras.callbacks.Callback):
    """Records the calls of its hooks.

    Args:
      fails_after_epoch: Number of an epoch at whose end it raises `InterruptionError`,
        if any.
    """

    def __init__(self, fails_after_epoch: int | None = None):
        super().__init__()
        self.fails_after = (fails_after_epoch,)  # a tuple is not saved with the training's state
        self.calls: list = []
        self.epochs: dict[int, dict[str, float]] = {}

    def on_train_begin(self, logs=None):
        self.calls.append(("train begin",))

    def on_train_end(self, logs=None):
        self.calls.append(("train end",))

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(("epoch begin", epoch))

    def on_epoch_end(self, epoch, logs=None):
        if epoch in self.fails_after:
            raise InterruptionError
        self.calls.append(("epoch end", epoch, sorted(logs)))
        self.epochs[epoch] = {name: float(value) for name, value in logs.items()}

    def on_test_begin(self, logs=None):
        self.calls.append(("test begin",))

    def on_test_end(self, logs=None):
        self.calls.append(("test end",))


class BatchTrace(Trace):
    """Records batch hooks as well: then the loop makes one step in each call."""

    def on_train_batch_begin(self, batch, logs=None):
        self.calls.append(("train batch begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(("train batch end", batch))

    def on_test_batch_begin(self, batch, logs=None):
        self.calls.append(("test batch begin", batch))

    def on_test_batch_end(self, batch, logs=None):
        self.calls.append(("test batch end", batch))


def make_decay():
    """Returns a callback that derives each learning rate from the previous one.

    If a rate is set twice, the results differ.
    """
    return tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.7)


def callbacks(kind: str, trace) -> list:
    return [trace] if kind.startswith("schedule") else [trace, make_decay()]


def as_fit_takes(batch):
    """Returns features alone as they are, not in a tuple."""
    return batch if len(batch) > 1 else batch[0]


class Cells:
    """Trains the cells of one strategy in one of its processes."""

    def __init__(self, data, keras_version: int, resumed: list[str], distribution, strategy, is_chief: bool, folder: Path):
        self.data, self.keras, self.resumed, self.folder = data, keras_version, resumed, folder
        self.distribution, self.strategy, self.is_chief = distribution, strategy, is_chief

    def job(self, kind: str, batch: int, name: str, **changes):
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
        tf.keras.mixed_precision.set_global_policy("float32")
        job = self.job(kind, BATCH, "fit", drop_remainder=drop_remainder)
        features = Features(job.data, example_functions.load(job.module))
        plan = make_plan(job.training_options, job.data.train.num_examples, 1)
        model = model_builder.build(job, model_builder.make_context(job, features, plan, True)).model
        read = features if isinstance(model, kinds._Table) else features.select(input_names(model, features))
        input_pipeline = InputPipeline(job.data, read, job.training_options, job.input_options, plan, readers=1, batches=1)
        evaluation = input_pipeline.evaluation(tf.distribute.InputContext(), 1).take(input_pipeline.eval_steps(1))
        trace = BatchTrace()
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
        tf.keras.mixed_precision.set_global_policy("float32")
        fixed_batches = has_fixed_batches(kind, self.distribution.strategy)
        job = self.job(kind, BATCH // self.strategy.num_replicas_in_sync, name, drop_remainder=fixed_batches)
        strategy_table.check(job.distribution, job.training_options, job.input_options, job.fault_tolerance)
        trace = (BatchTrace if batches else Trace)(fails_after_epoch)
        sys.modules["kinds"].callbacks = lambda context: callbacks(kind, trace)
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


def run_fit(keras_version: int, references: list[tuple[str, bool]], data, folder: Path) -> None:
    """Trains with `fit` and writes the results, or the names of errors, to files.

    Args:
      keras_version: Generation of Keras.
      references: Kinds, each with True for batches of the same size.
      data: The examples.
      folder: Folder for the results.
    """
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
    strategy = factory.create(distribution)
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
