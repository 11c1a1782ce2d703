"""Runs the training steps of one epoch, divided into TensorFlow calls.

Counts and reports them, and profiles some.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.job.time_use import WAIT
from tfx_distribute.trainer_module.keras.keras_metrics import as_floats
from tfx_distribute.trainer_module.liveness import preemption
from tfx_distribute.trainer_module.loop.peers import Peers
from tfx_distribute.trainer_module.loop.process_times import TimeMeter
from tfx_distribute.trainer_module.loop.step_runner import StepRunner
from tfx_distribute.trainer_module.reporting.progress import Progress, Reporter
from tfx_distribute.trainer_module.state.checkpoint import Checkpoints, Position


class EpochRunner:
    """Runs training steps, many in each TensorFlow call.

    Between calls, it calls the batch hooks of callbacks, saves the state when that is
    due, and ends a process that was asked to stop. Processes in step do the same things
    after the same step. With `steps_per_execution` 0, a call has as many steps as take
    `step_runner.call_seconds`.
    """

    def __init__(
        self,
        step_runner: StepRunner,
        peers: Peers,
        steps_per_execution: int,
        callbacks: tf.keras.callbacks.CallbackList,
        counter: "StepCounter",
        profiler: "Profiler",
        checkpoints: Checkpoints,
    ):
        self._step_runner, self._peers = step_runner, peers
        self._steps_per_execution = steps_per_execution
        self._callbacks = callbacks
        # Steps until the processes agree again on what to do.
        self._stretch = steps_per_execution or 1
        self._counter = counter
        self._profiler = profiler
        self._checkpoints = checkpoints
        self._is_traced = self._reads_metrics = False
        # Like the sum of gradients. `time_use.summarize` takes one of the two for all.
        waiting = WAIT if step_runner.step.measures_peers else "compute"
        self._agreeing = waiting if peers.exist else "other"

    def run(self, epoch: int, first_step: int, num_steps: int) -> None:
        """Runs the steps of an epoch after `first_step`, until a batch hook stops it.

        Raises PreemptedError if a process was asked to stop. The state is saved, or the
        last report says why not.
        """
        # True if any process has a callback with batch hooks. As in `fit`, the hooks
        # are called for each execution.
        calls_hooks = self._peers.agree(_has_batch_hooks(self._callbacks, "train"))[0] > 0
        min_steps = self._steps_per_execution or 1
        has_fixed_calls = bool(self._steps_per_execution or calls_hooks)
        done = first_step
        self._counter.enter_step()
        while done < num_steps:
            stretch = min_steps if calls_hooks else self._stretch
            until = min(done + stretch, done + self._checkpoints.steps_until_due(self._counter.step), num_steps)
            count, started = until - done, time.monotonic()
            while done < until:
                max_steps = min(min_steps, until - done) if has_fixed_calls else until - done
                done += self._run_call(done, max_steps, calls_hooks, until)
            elapsed = time.monotonic() - started
            # Grows gradually, because the time of the first call includes tracing.
            next_stretch = min(10 * count, int(count * self._step_runner.call_seconds / max(elapsed, 1e-9)))
            with self._counter.meter.spending(self._agreeing):
                agreed_stretch, save_due, preempted, stop_training = self._peers.agree(
                    next_stretch,
                    self._checkpoints.due(self._counter.step),
                    preemption.preemption_requested(),
                    calls_hooks and self._callbacks.model.stop_training,
                )
            if stop_training:
                # Without a save, even if a process was asked to stop: a training that
                # resumes has to come to this step again to end here.
                break
            if save_due or preempted:
                self.save(Position(epoch, done, self._counter.step), bool(preempted))
            self._counter.enter_step()
            self._stretch = max(min_steps, int(agreed_stretch))

    def ends_training(self, epoch: int, is_last: bool, wants_times: bool) -> tuple[bool, bool]:
        """Decides whether training ends after an epoch; if not, saves the state if due.

        Returns True if it ends, and True if any process wants the times of the
        processes. Raises PreemptedError if a process was asked to stop.
        """
        with self._counter.meter.spending(self._agreeing):
            stop_training, save_due, preempted, times_wanted = self._peers.agree(
                self._callbacks.model.stop_training,
                self._checkpoints.due(self._counter.step),
                preemption.preemption_requested(),
                wants_times,
            )
        if stop_training or is_last:
            return True, True
        if save_due or preempted:
            self.save(Position(epoch + 1, 0, self._counter.step), bool(preempted))
        return False, bool(times_wanted)

    def read_metrics(self) -> dict[str, float]:
        """Returns the training metrics of the epoch so far."""
        # The first time, TensorFlow traces their computation.
        with self._counter.meter.spending("compute" if self._reads_metrics else "trace"):
            self._reads_metrics = True
            return as_floats(self._step_runner.metrics())

    def evaluate(self) -> dict[str, float]:
        """Evaluates on the eval split and returns the metrics, as `fit` does."""
        with self._counter.meter.spending("evaluate"):
            calls_hooks = self._peers.agree(_has_batch_hooks(self._callbacks, "test"))[0] > 0
            self._callbacks.on_test_begin()
            self._step_runner.evaluate(self._callbacks if calls_hooks else None)
            metrics = as_floats(self._step_runner.metrics(evaluated=True))
            self._callbacks.on_test_end(metrics)
        return metrics

    def save(self, position: Position, preempted: bool = False) -> None:
        """Saves the state, and raises PreemptedError if `preempted` is true."""
        self._counter.reporter.enter("saving the training state")
        with self._counter.meter.spending("save"):
            self._checkpoints.save(position)
        remark = self._checkpoints.remark
        if preempted:
            message = remark or f"saved after training step {position.step}"
            self._counter.report(message=message)
            raise PreemptedError(f"asked to stop; {message}")
        if remark:
            self._counter.report(message=remark)

    def _run_call(self, done: int, max_steps: int, calls_hooks: bool, until: int) -> int:
        """Makes one TensorFlow call and returns the number of its steps."""
        self._profiler.start_if_due(self._counter.step)
        count = min(max_steps, self._profiler.steps_until_end(self._counter.step) or max_steps)
        if calls_hooks:
            self._callbacks.on_train_batch_begin(done)
        # Devices are not idle between two calls, unless someone looks at them there.
        is_profiled = self._profiler.steps_until_end(self._counter.step) is not None
        loss = self._train(count, waits=calls_hooks or is_profiled or done + count == until)
        if calls_hooks:  # callbacks may set the learning rate from it: the same in all processes
            with self._counter.meter.spending(self._agreeing):
                loss = self._peers.agree(loss)[0]
        self._counter.advance(count, loss)
        self._profiler.stop_if_due(self._counter.step)
        if calls_hooks:
            self._callbacks.on_train_batch_end(done + count - 1, {"loss": loss})
        return count

    def _train(self, count: int, waits: bool) -> Any:
        """Makes the call and counts its time by activity; returns the loss.

        With `waits`, waits until the devices have computed it.
        """
        meter, began = self._counter.meter, time.time()
        with meter.spending("compute"):
            loss, call_time = self._step_runner.train(count)
            if waits:
                loss = float(loss)
        is_traced, self._is_traced = self._is_traced, True
        if call_time.begin:
            meter.move("compute", "other" if is_traced else "trace", call_time.begin - began)
        meter.move("compute", "input", call_time.input)
        if call_time.wait_for_peers is not None:
            meter.move("compute", WAIT, call_time.wait_for_peers)
        return loss


def _has_batch_hooks(callbacks: tf.keras.callbacks.CallbackList, mode: str) -> bool:
    """Returns True if any callback has batch hooks of a mode, `train` or `test`."""
    keras_2_answer: bool | None = getattr(callbacks, f"_should_call_{mode}_batch_hooks", None)
    if keras_2_answer is not None:
        return keras_2_answer
    hooks = [f"on_{mode}_batch_begin", f"on_{mode}_batch_end"]
    if mode == "train":
        hooks += ["on_batch_begin", "on_batch_end"]
    return any(
        # A LambdaCallback replaces the methods by functions in its attributes.
        getattr(getattr(callback, hook), "__func__", None) is not getattr(tf.keras.callbacks.Callback, hook)
        for callback in callbacks.callbacks
        for hook in hooks
        # These callbacks of Keras have batch hooks that do nothing with such settings.
        if "epoch" not in (getattr(callback, "save_freq", ""), getattr(callback, "update_freq", ""))
    )


class Profiler:
    """Runs TensorBoard's profiler during a window of training steps.

    Every process divides its calls at the window's ends, so that the calls of all
    processes have the same length. Only a process with a folder, TensorBoard's log
    folder, profiles. The window is the first and last training step, from 1.
    """

    def __init__(self, window: tuple[int, int] | None, folder: str | None):
        # Steps that are done when the profiler starts and when it stops.
        self._ends: tuple[int, ...] = (window[0] - 1, window[1]) if window else ()
        self._folder = folder
        self._running = False

    def start_if_due(self, step: int) -> None:
        """Starts the profiler if the window begins after `step` steps."""
        if self._folder is not None and self._ends and step == self._ends[0]:
            tf.profiler.experimental.start(self._folder)
            self._running = True

    def stop_if_due(self, step: int) -> None:
        """Stops the profiler if the window has ended after `step` steps."""
        if self._ends and step >= self._ends[1]:
            self.stop()

    def stop(self) -> None:
        """Stops the profiler if it is running, and writes the profile."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False

    def steps_until_end(self, step: int) -> int | None:
        """Returns the number of steps from `step` to the next end of the window.

        None if both ends are past.
        """
        return next((end - step for end in self._ends if end > step), None)


class StepCounter:
    """Counts training steps and reports progress, at most once per interval.

    Attributes:
      step: Training steps that are done in total, those of earlier tries included.
      meter: Measures how this process spends its time.
    """

    def __init__(
        self, reporter: Reporter, plan: Plan, examples_per_step: int, read_learning_rate: Callable[[], float | None]
    ):
        self.step = 0
        self.meter = TimeMeter()
        self._read_learning_rate = read_learning_rate
        self.reporter = reporter
        self._plan = plan
        self._examples_per_step = examples_per_step
        self._reported_step = self._start_step = 0
        self._reported_at = self._epoch_at = time.monotonic()
        self._epoch_step = 0

    def begin(self, step: int, remark: str) -> None:
        """Starts to count after the steps of earlier tries, and reports a remark."""
        self.meter.begin_training()
        self.step = self._reported_step = self._start_step = self._epoch_step = step
        self.report(message=remark or (f"continues after training step {step}" if step else ""))

    @contextlib.contextmanager
    def reporting_step_on_error(self) -> Iterator[None]:
        """Reports the current step before an error leaves the block."""
        try:
            yield
        except BaseException:
            self._read_learning_rate = lambda: None  # it may be on a process that is gone
            self.report()
            raise

    def advance(self, count: int, loss: Any) -> None:
        """Adds `count` steps, of which the last had this loss, a number or a tensor."""
        is_first_call = self.step == self._start_step
        self.step += count
        self.enter_step()
        if is_first_call or self.reporter.due():  # the first report shows that training works
            with self.meter.spending("compute"):  # a device may still compute it
                loss = float(loss)
            self.report({"loss": loss})

    def enter_step(self) -> None:
        """Records that the next training step starts."""
        self.reporter.enter(f"training step {self.step + 1}")

    def report(self, metrics: dict[str, float] | None = None, message: str = "") -> None:
        """Reports progress now."""
        now = time.monotonic()
        examples = (self.step - self._reported_step) * self._examples_per_step
        rate = examples / max(now - self._reported_at, 1e-9)
        self._reported_step, self._reported_at = self.step, now
        self.reporter.report(self._progress("train", rate, metrics or {}, message))

    def record_epoch(self, metrics: dict[str, float]) -> None:
        """Records the end of an epoch, with its training's and evaluation's metrics."""
        rate = (self.step - self._epoch_step) * self._examples_per_step / max(time.monotonic() - self._epoch_at, 1e-9)
        self._epoch_step, self._epoch_at = self.step, time.monotonic()
        self.reporter.record(self._progress("epoch", rate, metrics))

    def _progress(self, phase: str, rate: float, metrics: dict[str, float], message: str = "") -> Progress:
        plan = self._plan
        return Progress(
            phase=phase,
            step=self.step,
            train_steps=plan.train_steps,
            examples_per_second=rate,
            num_replicas=plan.num_replicas,
            global_batch_size=plan.global_batch_size,
            metrics=metrics,
            message=message,
            # The epoch of the last step that is done.
            epoch=max(1, -(-self.step // plan.steps_per_epoch)),
            epochs=plan.epochs,
            learning_rate=self._read_learning_rate(),
            seconds=self.meter.seconds(),
            counters=self.meter.counters(),
        )
