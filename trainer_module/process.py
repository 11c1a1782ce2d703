"""Runs one training process, from its job document to its exit code."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from dataclasses import replace

import tensorflow as tf

from tfx_distribute.trainer_module import atomic_files, export
from tfx_distribute.trainer_module.asking import Checker, Questions
from tfx_distribute.trainer_module.data import example_functions
from tfx_distribute.trainer_module.data.feature_specs import Features
from tfx_distribute.trainer_module.errors import (
    ConfigurationError,
    PeerLostError,
    PreemptedError,
    TfxDistributeError,
    TrainingError,
    first_line,
)
from tfx_distribute.trainer_module.job.cluster import (
    CHIEF_TASK,
    ERROR_FILE_VARIABLE,
    TF_CONFIG,
    ClusterTask,
    is_server,
    task_from_environment,
    tf_config_for,
)
from tfx_distribute.trainer_module.job.training_job import TrainingJob
from tfx_distribute.trainer_module.keras import autograph
from tfx_distribute.trainer_module.liveness import cluster_peers, exit_codes, exposure, lease, preemption, watchdog
from tfx_distribute.trainer_module.liveness.failure_report import Failure
from tfx_distribute.trainer_module.loop import coordinator_steps, training_loop
from tfx_distribute.trainer_module.loop.peers import Peers
from tfx_distribute.trainer_module.reporting import history, metrics_server, process_log
from tfx_distribute.trainer_module.reporting.process_log import LOGGER
from tfx_distribute.trainer_module.reporting.progress import LOCAL_HEARTBEATS, PROGRESS_FILE, Progress, Reporter
from tfx_distribute.trainer_module.state import checkpoint
from tfx_distribute.trainer_module.strategies import factory
from tfx_distribute.trainer_module.user_code import run_fn, user_exit

# Of a storage of files that does not answer now, such as Google Cloud Storage.
_OUTAGES = (tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError)
# Of TensorFlow's ResourceExhaustedError, where memory is not what is lacking.
_SHORTAGES = ("No space left on device", "Disk quota exceeded", "Too many open files")


def prepare() -> dict[str, str]:
    """Prepares a fork server: does once what each training process would have to do.

    Returns `exposure`: who can connect to the servers of training processes.
    """
    _ = tf.keras.Model  # imports tf.keras, which is lazy, now and not in every fork
    return {"exposure": exposure.find().value}


def main(job_file: str) -> int:
    """Runs a job document, at a path or address, as the task that TF_CONFIG names.

    Returns 0 if this process has done its part, else one of `exit_codes`; the reason is
    written to standard error.
    """
    process_log.configure()
    try:
        task = task_from_environment(os.environ)
        process_log.configure(task.file_name)
        path = os.environ.get(ERROR_FILE_VARIABLE)
        failure = Failure.read(path) if path else None
        if failure and failure.final:  # Vertex AI starts a process again, whatever its exit code
            raise TrainingError(f"this training has failed already: {failure.message}")
        text = atomic_files.read(job_file)
        if text is None:
            raise ConfigurationError(f"--job: there is no {job_file}")
        _run(TrainingJob.from_json(text), task)
    except BaseException as error:  # a module that calls sys.exit() has failed too
        if isinstance(error, SystemExit):
            error = TrainingError(f"module: {user_exit.describe(error)}")
        error = cluster_peers.as_peer_lost_error(error) or error
        code = _exit_code(error)
        _report_failure(error, exit_codes.is_final(code))
        return code
    return 0


def _exit_code(error: BaseException) -> int:
    if isinstance(error, PreemptedError):
        return preemption.exit_code()
    if isinstance(error, PeerLostError):
        return exit_codes.PEER_LOST
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return exit_codes.FAILED if any(text in str(error) for text in _SHORTAGES) else exit_codes.OUT_OF_MEMORY
    if isinstance(error, _OUTAGES) or isinstance(error.__cause__, _OUTAGES):
        return exit_codes.STORAGE_OUTAGE
    return exit_codes.FAILED


def _run(job: TrainingJob, task: ClusterTask) -> None:
    """Trains and exports the model, or serves, as the task is.

    Returns when the other processes that train in step are done too.
    """
    # Before threads and TensorFlow's devices, which a fork could not use.
    asks = task == CHIEF_TASK and job.outputs.serving_model_dir and job.raw_examples
    checker = Checker() if asks and job.distribution.strategy != "tpu" else None
    if job.run_fn is None:  # a run_fn may handle signals itself
        preemption.watch()
    autograph.exempt_libraries()
    lease.watch(is_chief=task == CHIEF_TASK)
    tf_config = tf_config_for(job.distribution, os.environ)
    if tf_config is None:
        os.environ.pop(TF_CONFIG, None)
    else:
        os.environ[TF_CONFIG] = tf_config
    reporter = Reporter(os.environ.get(PROGRESS_FILE), task.file_name)
    _serve_metrics(reporter, task)
    watchdog.start(reporter, task, job.fault_tolerance.progress_timeout_secs)
    with history.writing(reporter, job.outputs.model_run_dir):
        _run_task(job, task, reporter, checker)


def _serve_metrics(reporter: Reporter, task: ClusterTask) -> None:
    port = os.environ.get(metrics_server.PORT_VARIABLE)
    if not port or PROGRESS_FILE in os.environ:
        return
    if not port.isdecimal():
        raise ConfigurationError(f"{metrics_server.PORT_VARIABLE}: {port!r} is not a port; write such as 9400")
    address = os.environ.get(metrics_server.ADDRESS_VARIABLE, metrics_server.LOOPBACK)
    metrics_server.serve(reporter, task, int(port), address)


def _run_task(job: TrainingJob, task: ClusterTask, reporter: Reporter, checker: Checker | None) -> None:
    is_chief = task == CHIEF_TASK
    reporter.report(Progress("start"))
    factory.check_requested_gpus(job.distribution, task, os.environ)
    if is_server(job.distribution, task):
        reporter.report(Progress("serve"))
        reporter.enter("serving", limited=False)
        coordinator_steps.serve(task, job.distribution)
        if atomic_files.read(job.outputs.result_file) is None:
            raise PeerLostError(f"{task} has lost the chief, which has not finished")
        return
    if lease.find():  # then other machines train, which may have to be waited for
        reporter.enter("waiting for the other processes to start", limited=False)
        cluster_peers.meet(task, lambda message: reporter.report(Progress("start", message=message)))
        reporter.enter("start-up")
    heartbeat_secs = job.fault_tolerance.heartbeat_timeout_secs
    if PROGRESS_FILE in os.environ:  # the launcher is on this machine, and sees which process hangs
        heartbeat_secs *= LOCAL_HEARTBEATS
    strategy = factory.create(job.distribution, heartbeat_secs)
    with _output_folders(job, is_chief) as job:
        if job.run_fn is not None:
            reporter.enter("run_fn", limited=False)  # a run_fn does not report progress
            if is_chief:
                atomic_files.remove(job.outputs.result_file)  # it says that there is a whole model
                reporter.report(Progress("run_fn"))
            result = run_fn.run(job, job.run_fn, strategy, is_chief)
            questions = Questions(job.outputs.serving_model_dir, job.raw_examples)
        else:
            preemption.watch()
            assert job.data is not None, "a job without run_fn has data"
            reporter.enter("importing the module")
            features = Features(job.data, example_functions.load(job.module))
            model, result = training_loop.train(job, job.data, features, strategy, reporter, is_chief)
            if job.outputs.serving_model_dir:
                reporter.enter("export")
                reporter.report(Progress("export", step=result.train_steps, train_steps=result.train_steps))
                if is_chief:
                    atomic_files.remove(job.outputs.result_file)
                    export.export(model, features, job.outputs.serving_model_dir)
                    questions = export.make_questions(model, features, job.outputs.serving_model_dir, job.raw_examples)
                else:
                    checkpoint.save_and_discard(lambda folder: export.export(model, features, f"{folder}/serving"))
        if is_chief and job.outputs.serving_model_dir and not checker:
            why = "a fork cannot share a TPU" if job.raw_examples else "there are no raw examples, which a Sharder keeps"
            LOGGER.info(f"the exported model has not been asked: {why}")
        if checker and not result.unusable:  # else the launcher says so
            # It has a time limit itself.
            reporter.enter("asking the exported model", limited=False)
            if remark := checker.ask(questions):
                reporter.report(
                    Progress("export", step=result.train_steps, message=f"the model has not been asked: {remark}")
                )
        if is_chief:
            atomic_files.write(job.outputs.result_file, result.to_json())
    reporter.enter("waiting for the other processes to finish")
    try:
        Peers(strategy).barrier()
    except (tf.errors.OpError, RuntimeError) as error:
        if not is_chief:
            raise
        LOGGER.warning("another process is lost (%s), but the model is complete", first_line(error))
    reporter.report(Progress("done", step=result.train_steps, train_steps=result.train_steps))


@contextlib.contextmanager
def _output_folders(job: TrainingJob, is_chief: bool) -> Iterator[TrainingJob]:
    """Makes the job's output folders; temporary ones except for the chief.

    All processes in step have to take part in saving a model, so all of them write, but
    only the chief's files are kept. With a `run_fn`, all have its `model_run_dir`:
    Keras's callbacks read there on each process what they saved on the chief.
    """
    if is_chief or job.run_fn is not None:
        tf.io.gfile.makedirs(job.outputs.model_run_dir)
    if is_chief:
        yield job
        return
    with atomic_files.throwaway_folder() as folder:
        outputs = replace(job.outputs, serving_model_dir=job.outputs.serving_model_dir and f"{folder}/serving")
        if job.run_fn is None:
            outputs = replace(outputs, model_run_dir=f"{folder}/run")
            with contextlib.suppress(OSError):
                os.mkdir(outputs.model_run_dir)
        yield replace(job, outputs=outputs)


def _report_failure(error: BaseException, final: bool) -> None:
    expected = isinstance(error, TfxDistributeError)
    message = str(error) if expected else f"{type(error).__name__}: {error}"
    # A traceback has no line before it: launchers show the log's last lines.
    LOGGER.error(message if expected else "".join(traceback.format_exception(error)).rstrip("\n"))
    Failure(message, expected, final).report()
