"""The CustomJob launcher: creates a training cluster on Vertex AI, follows it, and cancels it if it is not to go on."""

import re
import time
from typing import Any

from absl import logging
from google.cloud.aiplatform_v1.types import CustomJob, JobState

from tfx_distribute.components.launchers.custom_job.client import ENDED, CustomJobClient
from tfx_distribute.components.launchers.custom_job.spec import TRAINING_LABEL, CustomJobSettings
from tfx_distribute.components.launchers.sigterm import terminable
from tfx_distribute.trainer_module.errors import TrainingError
from tfx_distribute.trainer_module.lifecycle import atomic_files, exit_codes
from tfx_distribute.trainer_module.lifecycle.failure_report import Failure

POLL_SECONDS = 10.0
# The service's words of a replica that failed; of one that a signal ended, some have the signal's number and name.
_EXIT_CODE = re.compile(r"non-zero status of (\d+)(\(SIG\w+\))?")


def run(
    request: dict[str, Any], settings: CustomJobSettings, max_restarts: int, error_file: str, anew: bool = False
) -> None:
    """Has a CustomJob train, to its end.

    One of the same training that goes on already, from an earlier try of this step, is followed; one that has succeeded is
    taken as it is.

    Args:
      request: The CustomJob.
      settings: Where it runs.
      max_restarts: How often a job is made anew that failed in a way that another may not; it goes on from the last save.
      error_file: Where a process says that it failed for good.
      anew: Whether one that has succeeded is of no use.

    Raises:
      ConfigurationError: It cannot be created.
      TrainingError: It failed, or is gone.
    """
    jobs = CustomJobClient(settings.project, settings.location)
    with terminable():
        follower = _JobWatcher(jobs, request, error_file)
        try:
            follower.start(anew)
            while not follower.follow():
                if not max_restarts:
                    raise TrainingError(f"{follower.why}\nAll restarts (max_restarts) are used up")
                max_restarts -= 1
                logging.warning("%s; starting it again from its last save", follower.why)
                follower.create()
        except BaseException:
            follower.cancel()
            raise


class _JobWatcher:
    """Follows a training to its end, through the jobs that it takes.

    Args:
      jobs: Requests to the service.
      request: What each job is made from.
      error_file: Where a process says that it failed for good.

    Attributes:
      why: Why the last job failed.
    """

    def __init__(self, jobs: CustomJobClient, request: dict[str, Any], error_file: str):
        self._jobs = jobs
        self._request = request
        self._training = request["labels"][TRAINING_LABEL]
        self._error_file = error_file
        self._job: CustomJob | None = None
        self.why = ""

    def start(self, anew: bool) -> None:
        """Finds the job of an earlier try, or creates one."""
        found = next(iter(self._jobs.of(self._training)), None)
        if found and found.state not in ENDED and self._has_failed_for_good():
            self._jobs.cancel(self._training)  # the service would go on for a while with what comes to nothing
            found = self._jobs.get(found.name)
        while found and found.state == JobState.JOB_STATE_CANCELLING:
            time.sleep(POLL_SECONDS)
            found = self._jobs.get(found.name)
        if found and (found.state not in ENDED or (_succeeded(found) and not anew)):
            logging.info("CustomJob %s of an earlier try: following it: %s", found.name, self._jobs.console(found))
            self._job = found
        else:
            self.create()

    def create(self) -> None:
        """Creates a job."""
        atomic_files.remove(self._error_file)
        self._job = None
        self._job = self._jobs.create(self._request)
        logging.info("created CustomJob %s: %s", self._job.name, self._jobs.console(self._job))

    def follow(self) -> bool:
        """Returns whether it has succeeded; where not, another one may.

        Raises:
          TrainingError: It has not, and another would not either.
        """
        assert self._job is not None
        name, told = self._job.name, None
        while True:
            job = self._job = self._jobs.get(name)
            if job.state != told:
                told = job.state
                error = f" ({job.error.message})" if job.error.message else ""
                logging.info("CustomJob %s: %s%s", name, told.name.removeprefix("JOB_STATE_").lower(), error)
            if _succeeded(job):
                return True
            if failure := self._has_failed_for_good():
                # The service would start the process again, and then the job, some times.
                raise TrainingError(f"CustomJob {name} failed: {failure.message}\nits logs: {self._jobs.logs(job)}")
            if job.state in ENDED:
                return self._has_failed(job)
            time.sleep(POLL_SECONDS)

    def _has_failed_for_good(self) -> Failure | None:
        """What a process of the job has said, after which there is no use in another try."""
        failure = Failure.read(self._error_file)
        return failure if failure and failure.final else None

    def _has_failed(self, job: CustomJob) -> bool:
        self.why = f"CustomJob {job.name} {_how(job)}"
        code = _EXIT_CODE.search(job.error.message)
        another_may = code and (code[2] or not exit_codes.is_final(int(code[1])))
        if job.state != JobState.JOB_STATE_FAILED or not another_may:
            raise TrainingError(f"{self.why}\nits logs: {self._jobs.logs(job)}")
        return False

    def cancel(self) -> None:
        """Cancels the job, whether or not the service has said that it created it.

        Does nothing once the job has ended: one of the same training that is running then is another try's.
        """
        if self._job is None or self._job.state not in ENDED:
            self._jobs.cancel(self._training)


def _succeeded(job: CustomJob) -> bool:
    return job.state in (JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_PARTIALLY_SUCCEEDED)


def _how(job: CustomJob) -> str:
    if job.state == JobState.JOB_STATE_EXPIRED:
        return f"has waited, or run, longer than it may ({job.error.message or 'it has expired'})"
    if job.state == JobState.JOB_STATE_CANCELLED:
        return f"was cancelled: {job.error.message or 'by somebody'}"
    return f"failed: {job.error.message or 'no reason is given'}"
