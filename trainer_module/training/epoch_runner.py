"""The training steps of one epoch, divided into TensorFlow calls."""

import contextlib
import time
from collections.abc import Iterator

import tensorflow as tf

from tfx_distribute.trainer_module.errors import PreemptedError
from tfx_distribute.trainer_module.job.step_plan import Plan
from tfx_distribute.trainer_module.lifecycle import preemption
from tfx_distribute.trainer_module.lifecycle.progress import Progress, Reporter
from tfx_distribute.trainer_module.training.checkpoint import Checkpoints, Position
from tfx_distribute.trainer_module.training.model_adapters import as_floats
from tfx_distribute.trainer_module.training.profiler import Profiler
from tfx_distribute.trainer_module.training.step_runner import StepRunner

CALL_SECONDS = 0.5  # how long one TensorFlow call of many steps aims to take: as often as progress is shown


class EpochRunner:
    """Takes training steps, as many in a call as progress reports allow or as are asked for.

    Between calls, callbacks that want to hear of batches do, state is saved when that is due, and a process that is told to
    leave leaves; all processes in step do the same at the same step.

    Args:
      steps: What takes them.
      steps_per_execution: Steps of a call; 0 for as many as take `CALL_SECONDS`.
      callbacks: The callbacks of all epochs.
      counter: Counts the steps.
      profiler: Watches some of them.
      checkpoints: Saves the state.
    """

    def __init__(
        self,
        steps: StepRunner,
        steps_per_execution: int,
        callbacks: tf.keras.callbacks.CallbackList,
        counter: "StepCounter",
        profiler: Profiler,
        checkpoints: Checkpoints,
    ):
        self._steps = steps
        self._each = steps_per_execution
        self._callbacks = callbacks
        self._counter = counter
        self._profiler = profiler
        self._checkpoints = checkpoints

    def run(self, epoch: int, first: int, num_steps: int) -> None:
        """Takes the steps of an epoch, or of what is left of it.

        Args:
          epoch: Number of the epoch, from 0.
          first: Steps of it that were taken already.
          num_steps: Steps of the epoch in all.

        Raises:
          PreemptedError: A process was told to leave; the state is saved.
        """
        # Whether some callback, of whichever process, wants to hear of each batch; as in `fit`, of each execution.
        hooks = self._steps.agree(_wants_batches(self._callbacks, "train"))[0] > 0
        each = self._each or 1
        stretch = each  # steps until the processes agree again on what to do
        done = first
        self._counter.enter_step()
        while done < num_steps:
            until = min(done + stretch, done + self._checkpoints.steps_until_due(self._counter.step), num_steps)
            count, began = until - done, time.monotonic()
            while done < until:
                done += self._call(done, until - done if not (self._each or hooks) else min(each, until - done), hooks)
            took = time.monotonic() - began
            # The first call also traces the function: grow by steps, not at once.
            longest = min(10 * count, int(count * CALL_SECONDS / max(took, 1e-9)))
            agreed, due, leaves, stops = self._steps.agree(
                longest,
                self._checkpoints.due(self._counter.step),
                preemption.preemption_requested(),
                hooks and self._callbacks.model.stop_training,
            )
            if due or leaves:
                self._counter.enter("saving the training state")
                self._checkpoints.save(Position(epoch, done, self._counter.step))
                if self._checkpoints.remark and not leaves:
                    self._counter.report(message=self._checkpoints.remark)
            if leaves:
                told = self._checkpoints.remark or f"saved after training step {self._counter.step}"
                self._counter.report(message=told)
                raise PreemptedError(f"told to leave; {told}")
            if stops:
                break
            self._counter.enter_step()
            stretch = each if hooks else max(each, int(agreed))

    def evaluate(self) -> dict[str, float]:
        """Evaluates on the eval split, as `evaluate` does within `fit`; returns the metrics."""
        hooks = self._steps.agree(_wants_batches(self._callbacks, "test"))[0] > 0
        self._callbacks.on_test_begin()
        self._steps.evaluate(self._callbacks if hooks else None)
        metrics = as_floats(self._steps.metrics(evaluated=True))
        self._callbacks.on_test_end(metrics)
        return metrics

    def _call(self, done: int, most: int, hooks: bool) -> int:
        """One TensorFlow call, of at most so many steps; returns how many it was."""
        self._profiler.start_if_due(self._counter.step)
        count = min(most, self._profiler.steps_until_end(self._counter.step) or most)
        if hooks:
            self._callbacks.on_train_batch_begin(done)
        loss = self._steps.train(count)
        self._counter.advance(count, loss)
        self._profiler.stop_if_due(self._counter.step)
        if hooks:
            self._callbacks.on_train_batch_end(done + count - 1, {"loss": loss})
        return count


def _wants_batches(callbacks: tf.keras.callbacks.CallbackList, mode: str) -> bool:
    """Returns whether some callback has hooks for each batch; `mode` is `train` or `test`."""
    keras_2_knows: bool | None = getattr(callbacks, f"_should_call_{mode}_batch_hooks", None)
    if keras_2_knows is not None:
        return keras_2_knows
    hooks = [f"on_{mode}_batch_begin", f"on_{mode}_batch_end"]
    if mode == "train":
        hooks += ["on_batch_begin", "on_batch_end"]
    return any(
        # A LambdaCallback has functions of its own in their place.
        getattr(getattr(callback, hook), "__func__", None) is not getattr(tf.keras.callbacks.Callback, hook)
        for callback in callbacks.callbacks
        for hook in hooks
        # Some of Keras's own hear of batches, and do nothing with them as they are set.
        if "epoch" not in (getattr(callback, "save_freq", ""), getattr(callback, "update_freq", ""))
    )


class StepCounter:
    """Counts training steps, and reports them at most once an interval."""

    def __init__(self, reporter: Reporter, plan: Plan, examples_per_step: int):
        self.step = 0
        self._reporter = reporter
        self._plan = plan
        self._examples_per_step = examples_per_step
        self._reported_step = self._first = 0
        self._reported_at = time.monotonic()

    def begin(self, step: int, remark: str) -> None:
        """Begins to count, after so many steps of an earlier try."""
        self.step = self._reported_step = self._first = step
        self.report(message=remark or (f"continues after training step {step}" if step else ""))

    @contextlib.contextmanager
    def reporting_step_on_error(self) -> Iterator[None]:
        """Has an error within the block be preceded by a report of the training step that it happened after."""
        try:
            yield
        except BaseException:
            self.report()
            raise

    def advance(self, count: int, loss: float) -> None:
        """So many steps were taken."""
        first = self.step == self._first
        self.step += count
        self.enter_step()
        if first or self._reporter.due():  # the first: training goes
            self.report({"loss": loss})

    def enter(self, activity: str) -> None:
        """Notes what the main thread begins to do; see `progress.Activity`."""
        self._reporter.enter(activity)

    def enter_step(self) -> None:
        """Notes that the next training step begins."""
        self.enter(f"training step {self.step + 1}")

    def report_if_due(self, metrics: dict[str, float]) -> None:
        """Reports, if the last report is old enough."""
        if self._reporter.due():
            self.report(metrics)

    def report(self, metrics: dict[str, float] | None = None, message: str = "") -> None:
        """Says how far training is, now.

        Args:
          metrics: Name -> value, as far as they are known.
          message: What a person should know beside.
        """
        now = time.monotonic()
        examples = (self.step - self._reported_step) * self._examples_per_step
        rate = examples / max(now - self._reported_at, 1e-9)
        self._reported_step, self._reported_at = self.step, now
        self._reporter.report(
            Progress(
                phase="train",
                step=self.step,
                train_steps=self._plan.train_steps,
                examples_per_second=rate,
                num_replicas=self._plan.num_replicas,
                global_batch_size=self._plan.global_batch_size,
                metrics=metrics,
                message=message,
            )
        )
