"""One training process, from its job document to its exit code."""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace

import tensorflow as tf

from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import (
    ConfigurationError,
    PeerLostError,
    PreemptedError,
    TfxDistributeError,
    TrainingError,
    as_shortage_error,
)
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    EVALUATOR,
    TF_CONFIG,
    is_server,
    task_from_environment,
    tf_config_for,
)
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.lifecycle import atomic_files, exit_codes, lease, peer_loss, preemption, watchdog
from tfx_distribute.trainer_module.lifecycle.failure_report import ERROR_FILE, Failure
from tfx_distribute.trainer_module.lifecycle.progress import PROGRESS_FILE, Progress, Reporter
from tfx_distribute.trainer_module.strategies import factory as strategy_lib
from tfx_distribute.trainer_module.training import autograph, checkpoint, coordinator_steps, export, loop, sidecar_evaluator
from tfx_distribute.trainer_module.user_code import run_fn, user_exit


def main(job_file: str) -> int:
    """Runs the job of a document as the task that TF_CONFIG names.

    Args:
      job_file: Path or address of a `TrainingJob` document.

    Returns:
      The exit code: 0 when this process's part is done, else one of `exit_codes`. What failed is on standard error.
    """
    try:
        _look_for_failure()
        text = atomic_files.read(job_file)
        if text is None:
            raise ConfigurationError(f"--job: there is no {job_file}")
        run(TrainingJob.from_json(text))
    except BaseException as error:  # a module that calls sys.exit() has not trained either
        if isinstance(error, SystemExit):
            error = TrainingError(f"module: {user_exit.describe(error)}")
        error = peer_loss.as_peer_lost_error(error) or as_shortage_error(error) or error
        code = _exit_code(error)
        _tell(error, exit_codes.is_final(code))
        return code
    return 0


def _look_for_failure() -> None:
    """Refuses to train where a process of this training has failed in a way that would come again.

    Vertex AI starts each process again that has failed, whatever its exit code.
    """
    path = os.environ.get(ERROR_FILE)
    told = path and Failure.read(path)
    if told and told.final:
        raise TrainingError(f"this training has failed already: {told.message}")


def _exit_code(error: BaseException) -> int:
    if isinstance(error, PreemptedError):
        return preemption.exit_code()
    if isinstance(error, PeerLostError):
        return exit_codes.PEER_LOST
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return exit_codes.OUT_OF_MEMORY
    return exit_codes.FAILED


def run(job: TrainingJob) -> None:
    """Trains, exports, and leaves when all others are done too."""
    if job.run_fn is None:  # which may have its own way with signals
        preemption.watch()
    autograph.exempt_tf_keras()
    task = task_from_environment(os.environ)
    is_chief = task == CHIEF_TASK
    if is_chief:
        lease.watch()
    tf_config = tf_config_for(job.distribution, os.environ)
    if tf_config is None:
        os.environ.pop(TF_CONFIG, None)
    else:
        os.environ[TF_CONFIG] = tf_config
    reporter = Reporter(os.environ.get(PROGRESS_FILE))
    watchdog.start(reporter, task, job.recovery.progress_timeout_secs)
    reporter.report(Progress("start"))
    if is_server(job.distribution, task):
        reporter.report(Progress("serve"))
        reporter.enter("serving", limited=False)
        coordinator_steps.serve(task, job.distribution)
        if atomic_files.read(job.outputs.result_file) is None:
            raise PeerLostError(f"{task} has lost the chief, which has not finished")
        return
    if task.role == EVALUATOR:
        assert job.data is not None, "a run_fn has no evaluator"
        sidecar_evaluator.run(job, job.data, task, reporter)
        return
    strategy = strategy_lib.create(job.distribution, peer_loss.heartbeat_timeout(job.recovery, os.environ))
    with _own_folders(job, is_chief) as job:
        if job.run_fn is not None:
            reporter.enter("run_fn", limited=False)  # which reports nothing of how it gets on
            result = run_fn.run(job, job.run_fn, strategy, is_chief)
        else:
            preemption.watch()
            assert job.data is not None, "a job without run_fn has data"
            features = Features(job.data)
            model, result = loop.train(job, job.data, features, strategy, reporter, is_chief)
            atomic_files.choose_temporary_folder()
            reporter.enter("export")
            reporter.report(Progress("export", step=result.train_steps, train_steps=result.train_steps))
            if is_chief:
                export.export(model, features, job.outputs.serving_model_dir)
            else:
                checkpoint.save_and_discard(lambda folder: export.export(model, features, f"{folder}/serving"))
    if is_chief:
        atomic_files.write(job.outputs.result_file, result.to_json())
    reporter.enter("waiting for the other processes to finish")
    _barrier(strategy)
    reporter.report(Progress("done", step=result.train_steps, train_steps=result.train_steps))


@contextlib.contextmanager
def _own_folders(job: TrainingJob, is_chief: bool) -> Iterator[TrainingJob]:
    """Gives the processes other than the chief temporary folders to write to.

    Saving a model takes part of all processes in step, so all of them write; only the chief's files are kept.
    """
    if is_chief:
        tf.io.gfile.makedirs(job.outputs.model_run_dir)
        yield job
        return
    with atomic_files.throwaway_folder() as folder:
        with contextlib.suppress(OSError):
            os.mkdir(f"{folder}/run")
        outputs = replace(job.outputs, serving_model_dir=f"{folder}/serving", model_run_dir=f"{folder}/run")
        yield replace(job, outputs=outputs)


def _barrier(strategy: tf.distribute.Strategy) -> None:
    """Waits for the other processes: one that leaves early looks to them like one that died."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return

    @tf.function
    def meet() -> tf.Tensor:
        here = strategy.run(lambda: tf.constant(1.0))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, here, axis=None)

    meet()
    # The others may still be fetching from here what this process has fetched from them. Whoever comes to meet again has
    # all it needs; and finds nobody, perhaps, since the others have met and left.
    with contextlib.suppress(tf.errors.OpError):
        meet()


def _tell(error: BaseException, final: bool) -> None:
    """Writes what failed: a message meant for people as it is, anything else with its traceback."""
    message = str(error) if isinstance(error, TfxDistributeError) else f"{type(error).__name__}: {error}"
    if isinstance(error, TfxDistributeError):
        print(message, file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    path = os.environ.get(ERROR_FILE)
    if path:
        with contextlib.suppress(OSError, tf.errors.OpError):  # no room: it stands in the log
            Failure(message, isinstance(error, TfxDistributeError), final).write(path)
