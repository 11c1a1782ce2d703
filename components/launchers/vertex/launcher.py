"""Launches a training cluster as a CustomJob on Vertex AI.

Creates the CustomJob, follows it until it ends, and cancels it if it must not continue.
"""

import time
from typing import Any

from absl import logging
from google.cloud.aiplatform_v1.types import CustomJob, JobState

from tfx_distribute.components.launchers.custom_job import status as custom_job_status
from tfx_distribute.components.launchers.custom_job.client import CustomJobClient
from tfx_distribute.components.launchers.custom_job.error_file import ErrorFile
from tfx_distribute.components.launchers.custom_job.spec import TRAINING_LABEL, CustomJobSettings
from tfx_distribute.components.launchers.restart_budget import RestartBudget
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.lifecycle.failure_report import Failure

POLL_SECONDS = 10.0
# The service sets the error of a failed job about a minute after its state. Source:
# https://cloud.google.com/vertex-ai/docs/training/understanding-training-service
ERROR_SECONDS = 180.0


def launch(
    spec: dict[str, Any], settings: CustomJobSettings, restarts: RestartBudget, error_file: str, *, has_result: bool = False
) -> None:
    """Trains in a CustomJob, and returns when it has succeeded.

    There may be a job of the same training from an earlier attempt of this step. If it
    is still running, it is followed; if it has ended, another one is created.

    Args:
      spec: The CustomJob, as `spec.make_spec` returns it.
      settings: Project and region of the job.
      restarts: How many times to create another job after a failure that may not
        happen again. Each continues from the last save.
      error_file: Path or address where a process reports that it failed for good.
      has_result: True if an earlier attempt has left the result. Then no job is
        created; only one that is still running is followed.

    Raises:
      ConfigurationError: The job cannot be created.
      NoRoomError: A quota is used up.
      TrainingError: The job failed or was deleted.
    """
    jobs = CustomJobClient(settings.project, settings.location)
    with terminable():
        watcher = _JobWatcher(jobs, spec, ErrorFile(error_file))
        try:
            has_ended = not watcher.start(has_result)
            while not (has_ended or watcher.follow()):
                if not restarts.spend():
                    raise TrainingError(f"{watcher.why}\nAll {restarts.max_restarts} restarts (max_restarts) are used up")
                logging.warning("%s; starting it again from its last save", watcher.why)
                watcher.create()
        except BaseException as error:
            watcher.cancel(has_time=isinstance(error, Exception))  # a signal gives little
            raise


class _JobWatcher:
    """Starts the CustomJobs of one training, one after another, and follows them.

    Args:
      jobs: Client of the CustomJobs.
      spec: CustomJob to create each job from.
      error_file: Where a process reports that it failed for good.

    Attributes:
      why: Why the last job failed.
    """

    def __init__(self, jobs: CustomJobClient, spec: dict[str, Any], error_file: ErrorFile):
        self._jobs = jobs
        self._spec = spec
        self._training = spec["labels"][TRAINING_LABEL]
        self._error_file = error_file
        self._job: CustomJob | None = None
        self.why = ""

    def start(self, has_result: bool) -> bool:
        """Creates a job, or takes over that of an earlier attempt.

        Args:
          has_result: True if an earlier attempt has left the result: no job is created.

        Returns:
          True if there is a job to follow.
        """
        job = next(iter(self._jobs.list_jobs(self._training)), None)
        if job and not custom_job_status.has_ended(job) and self._error_file.look():
            # The service would restart the failed process for a while, in vain.
            self._jobs.cancel(self._training, job.name)
            job = self._jobs.get(job.name)
        while job and job.state == JobState.JOB_STATE_CANCELLING:
            time.sleep(POLL_SECONDS)
            job = self._jobs.get(job.name)
        if job and (not custom_job_status.has_ended(job) or (custom_job_status.has_succeeded(job) and has_result)):
            logging.info("CustomJob %s of an earlier attempt: following it: %s", job.name, self._jobs.console_url(job))
            self._job = job
            return True
        if not has_result:
            self.create()
        return not has_result

    def create(self) -> None:
        """Creates a job."""
        self._error_file.remove()
        self._job = None
        self._job = self._jobs.create(self._spec)
        logging.info("created CustomJob %s: %s", self._job.name, self._jobs.console_url(self._job))

    def follow(self) -> bool:
        """Follows the job until it ends.

        Returns:
          True if it has succeeded, False if another job may succeed.

        Raises:
          TrainingError: It failed, and another job would fail too.
        """
        assert self._job is not None
        name, logged_state = self._job.name, None
        while True:
            job = self._job = self._jobs.get(name)
            if job.state != logged_state:
                logged_state = job.state
                logging.info("CustomJob %s: %s", name, custom_job_status.describe(job))
            if custom_job_status.has_succeeded(job):
                return True
            if not custom_job_status.has_ended(job):
                # The service would restart the process, and then the job, several
                # times.
                self._raise_if_final(self._error_file.look())
                time.sleep(POLL_SECONDS)
                continue
            self._raise_if_final(self._error_file.read())
            job = self._job = self._wait_for_error(job)
            self.why = f"CustomJob {name} {custom_job_status.describe_failure(job)}"
            if not custom_job_status.may_retry(job):
                raise TrainingError(f"{self.why}\nits logs: {self._jobs.log_url(job)}")
            return False

    def cancel(self, has_time: bool) -> None:
        """Cancels the job, even if the service has not confirmed that it created it.

        Another job of the same training that is running belongs to another attempt.

        Args:
          has_time: True to repeat requests that the service does not answer.
        """
        if self._job is None or not custom_job_status.has_ended(self._job):
            self._jobs.cancel(self._training, self._job and self._job.name, has_time=has_time)

    def _raise_if_final(self, failure: Failure | None) -> None:
        """Raises what a process reported, if it reported that it failed for good."""
        if failure and self._job:
            raise TrainingError(
                f"CustomJob {self._job.name} failed: {failure.message}\nits logs: {self._jobs.log_url(self._job)}"
            )

    def _wait_for_error(self, job: CustomJob) -> CustomJob:
        """Returns a failed job with its error, which the service sets later."""
        deadline = time.monotonic() + ERROR_SECONDS
        while custom_job_status.lacks_error(job) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            job = self._jobs.get(job.name)
        return job
