"""Creates, follows and cancels the CustomJobs of one training."""

import contextlib
import re
import time

from absl import logging
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud.aiplatform.utils import JobClientWithOverride
from google.cloud.aiplatform_v1.types import CustomJob, JobState

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import storage
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.launcher import Request, State
from tfx_distribute.components.launchers.restarts import Failure
from tfx_distribute.components.launchers.vertex import service
from tfx_distribute.components.launchers.vertex.launcher import TRAINING_LABEL, VertexTrainingSettings
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.job.cluster import ERROR_FILE_VARIABLE
from tfx_distribute.trainer_module.liveness import exit_codes, failure_report

# How the service reports a replica that failed. If a signal ended it, the number is
# that of the signal in some cases, with the signal's name behind it.
_EXIT_CODE = re.compile(r"non-zero status of (\d+)(\(SIG\w+\))?")
# The job keeps running even if this step loses its credentials or roles for a while.
_TRANSIENT_WHILE_FOLLOWING = (
    *service.TRANSIENT,
    auth_exceptions.GoogleAuthError,
    exceptions.Unauthorized,
    exceptions.Forbidden,
)
_ENDED = ("succeeded", "partially_succeeded", "failed", "cancelled", "expired")


class FollowedJob:
    """The latest CustomJob of a training. It is found by its label.

    `request` is the CustomJob to create, JSON values.

    Raises:
      ConfigurationError: Credentials are missing, or the region does not exist.
    """

    def __init__(self, settings: VertexTrainingSettings, request: Request, poll_seconds: float):
        self._settings, self._request, self._poll_seconds = settings, request, poll_seconds
        self._client, self._parent = service.connect(JobClientWithOverride, settings.project, settings.location)
        training = request["labels"][TRAINING_LABEL]
        self._jobs_of_training = {"parent": self._parent, "filter": f'labels.{TRAINING_LABEL}="{training}"'}
        variables = request["job_spec"]["worker_pool_specs"][0]["container_spec"]["env"]
        self._error_file = {each["name"]: each["value"] for each in variables}[ERROR_FILE_VARIABLE]
        self._job: CustomJob | None = None
        self._failed_at = 0.0  # when it was first seen to have failed without an error

    def start(self, has_result: bool) -> bool:
        """Creates a job, or takes over an unfinished one; see `Launcher.start`."""
        job = self._find_unfinished()
        while job and job.state == JobState.JOB_STATE_CANCELLING:
            time.sleep(self._poll_seconds)
            job = self._find_unfinished()
        if job:
            logging.info("CustomJob %s of an earlier attempt: following it: %s", job.name, self._address_of(job))
            self._job = job
        elif not has_result:
            storage.call(self._error_file, lambda: atomic_files.remove(self._error_file))  # that of an earlier job
            self._job, self._failed_at = None, 0.0
            message = service.parse(CustomJob, self._request)

            def create() -> CustomJob:
                # A request before, whose answer was lost, may have created it.
                return self._find_unfinished() or self._client.create_custom_job(
                    parent=self._parent, custom_job=message, timeout=timeouts.REQUEST_SECONDS
                )

            with service.explaining_errors():
                # Without TooManyRequests: a quota that is used up does not pass soon.
                self._job = service.call(create, service.UNAVAILABLE)
            logging.info("created CustomJob %s: %s", self._job.name, self._address_of(self._job))
        return bool(job) or not has_result

    def state(self) -> State:
        """Asks for the state of the job, and for a process's report of its failure.

        Raises:
          NotFollowedError: The job is gone, or the service does not answer.
        """
        assert self._job is not None, "start comes first"
        name = self._job.name
        try:
            job = self._job = service.call(
                lambda: self._client.get_custom_job(name=name, timeout=timeouts.REQUEST_SECONDS), _TRANSIENT_WHILE_FOLLOWING
            )
        except exceptions.NotFound as error:
            raise GoneError(f"CustomJob {name} is gone: somebody has deleted it while it was training") from error
        words = f"CustomJob {name}: {_state(job)}"
        if _state(job) in ("succeeded", "partially_succeeded"):
            return State("succeeded", words)
        report = self._read_report()
        where = f"its logs: {self._address_of(job)}"
        if report:
            self.cancel(has_time=True)  # the service would restart the process, and then the job
            return State("failed", words, Failure(f"CustomJob {name} failed: {report.message}\n{where}", is_final=True))
        if not _has_ended(job):
            return State("running" if job.state == JobState.JOB_STATE_RUNNING else "queued", words)
        if _lacks_error(job):
            self._failed_at = self._failed_at or time.monotonic()
            if time.monotonic() - self._failed_at < timeouts.VERTEX_ERROR_SECONDS:
                return State("running", f"{words}; waiting for the reason")
        message = f"{words}: {job.error.message or 'no reason is given'}\n{where}"
        return State("failed", words, Failure(message, is_final=not _may_retry(job)))

    def cancel(self, has_time: bool) -> None:
        """Cancels the job.

        If `has_time`, requests that the service does not answer are repeated. A job
        that cannot be cancelled ends when its chief finds the lease expired.
        """
        if self._job is None:
            return
        name = self._job.name

        def cancel() -> None:
            with contextlib.suppress(exceptions.BadRequest):  # it has ended
                self._client.cancel_custom_job(name=name, timeout=timeouts.LAST_REQUEST_SECONDS)

        logging.info("cancelling CustomJob %s", name)
        try:
            service.call(cancel, seconds=timeouts.STOP_SECONDS if has_time else 0.0)
        except (exceptions.GoogleAPICallError, auth_exceptions.GoogleAuthError, NotFollowedError) as error:
            logging.warning("cannot cancel CustomJob %s, which may run for another half an hour: %s", name, error)

    def _find_unfinished(self) -> CustomJob | None:
        with service.explaining_errors():
            jobs = service.call(
                lambda: list(self._client.list_custom_jobs(self._jobs_of_training, timeout=timeouts.REQUEST_SECONDS))
            )
        return max((job for job in jobs if not _has_ended(job)), key=lambda job: job.create_time, default=None)

    def _read_report(self) -> failure_report.Failure | None:
        """Returns a process's report that it has failed for good, if it can be read."""
        try:
            report = failure_report.Failure.read(self._error_file)
        except storage.ERRORS as error:
            logging.log_first_n(logging.WARNING, "cannot read %s, training goes on: %s", 1, self._error_file, error)
            return None
        return report if report and report.final else None

    def _address_of(self, job: CustomJob) -> str:
        """Returns the address of a job's page in the Google Cloud console."""
        place, number = self._settings.location, job.name.rpartition("/")[2]
        return f"{service.CONSOLE}/{place}/training/{number}?project={self._settings.project}"


def _state(job: CustomJob) -> str:
    return str(job.state.name.removeprefix("JOB_STATE_").lower())


def _has_ended(job: CustomJob) -> bool:
    return _state(job) in _ENDED


def _lacks_error(job: CustomJob) -> bool:
    return bool(job.state.name == "JOB_STATE_FAILED" and not job.error.message and not job.error.code)


def _may_retry(job: CustomJob) -> bool:
    """Returns True if another job may succeed where this one failed.

    A failure without an exit code is one of the service, such as a lack of machines: it
    may pass. A process of ours that fails for good reports it.
    """
    if job.state.name != "JOB_STATE_FAILED":
        return False
    code = _EXIT_CODE.search(job.error.message)
    return code is None or bool(code[2]) or not exit_codes.is_final(int(code[1]))
