"""Sends requests about the CustomJobs of one training."""

import contextlib

from absl import logging
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud.aiplatform.utils import JobClientWithOverride
from google.cloud.aiplatform_v1.types import CustomJob

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers import storage
from tfx_distribute.components.launchers.errors import GoneError, NotFollowedError
from tfx_distribute.components.launchers.launcher import Request
from tfx_distribute.components.launchers.vertex import service
from tfx_distribute.components.launchers.vertex.launcher import ENDED, TRAINING_LABEL, state_of
from tfx_distribute.trainer_module import atomic_files
from tfx_distribute.trainer_module.job.cluster import ERROR_FILE_VARIABLE
from tfx_distribute.trainer_module.liveness.failure_report import Failure

# The job keeps running even if this step loses its credentials or roles for a while.
_TRANSIENT_WHILE_FOLLOWING = (
    *service.TRANSIENT,
    auth_exceptions.GoogleAuthError,
    exceptions.Unauthorized,
    exceptions.Forbidden,
)


class CustomJobs:
    """The jobs of a training, which have its label. `request` is one, JSON values.

    Raises:
      ConfigurationError: Credentials are missing, or the region does not exist.
    """

    def __init__(self, project: str, location: str, request: Request):
        self._project, self._location, self._request = project, location, request
        self._client, self._parent = service.connect(JobClientWithOverride, project, location)
        variables = request["job_spec"]["worker_pool_specs"][0]["container_spec"]["env"]
        self._error_file = {each["name"]: each["value"] for each in variables}[ERROR_FILE_VARIABLE]

    def create(self) -> CustomJob:
        """Creates a job, unless one is there by now."""
        storage.call(self._error_file, lambda: atomic_files.remove(self._error_file))  # that of an earlier job
        message = service.parse(CustomJob, self._request)

        def create() -> CustomJob:
            # A request before, whose answer was lost, may have created it.
            return self.find_unfinished() or self._client.create_custom_job(
                parent=self._parent, custom_job=message, timeout=timeouts.REQUEST_SECONDS
            )

        with service.explaining_errors():
            # Without TooManyRequests: a quota that is used up does not pass soon.
            return service.call(create, service.UNAVAILABLE)

    def find_unfinished(self) -> CustomJob | None:
        """Returns the latest job that has not ended."""
        label = f'labels.{TRAINING_LABEL}="{self._request["labels"][TRAINING_LABEL]}"'
        request = {"parent": self._parent, "filter": label}
        with service.explaining_errors():
            jobs = service.call(lambda: list(self._client.list_custom_jobs(request, timeout=timeouts.REQUEST_SECONDS)))
        unfinished = [job for job in jobs if state_of(job) not in ENDED]
        return max(unfinished, key=lambda job: job.create_time, default=None)

    def get(self, name: str) -> CustomJob:
        """Returns a job in its current state.

        Raises:
          NotFollowedError: The job is gone, or the service does not answer.
        """
        try:
            return service.call(
                lambda: self._client.get_custom_job(name=name, timeout=timeouts.REQUEST_SECONDS), _TRANSIENT_WHILE_FOLLOWING
            )
        except exceptions.NotFound as error:
            raise GoneError(f"CustomJob {name} is gone: somebody has deleted it while it was training") from error

    def read_report(self) -> Failure | None:
        """Returns a process's report that it has failed for good, if it can be read."""
        try:
            report = Failure.read(self._error_file)
        except storage.ERRORS as error:
            logging.log_first_n(logging.WARNING, "cannot read %s, training goes on: %s", 1, self._error_file, error)
            return None
        return report if report and report.final else None

    def cancel(self, name: str, has_time: bool) -> None:
        """Cancels a job; repeats requests that are not answered only if `has_time`.

        A job that cannot be cancelled ends when its chief finds the lease expired.
        """

        def cancel() -> None:
            with contextlib.suppress(exceptions.BadRequest):  # it has ended
                self._client.cancel_custom_job(name=name, timeout=timeouts.LAST_REQUEST_SECONDS)

        logging.info("cancelling CustomJob %s", name)
        try:
            service.call(cancel, seconds=timeouts.STOP_SECONDS if has_time else 0.0)
        except (exceptions.GoogleAPICallError, auth_exceptions.GoogleAuthError, NotFollowedError) as error:
            logging.warning("cannot cancel CustomJob %s, which may run for another half an hour: %s", name, error)

    def address_of(self, name: str) -> str:
        """Returns the address of a job's page in the Google Cloud console."""
        return f"{service.CONSOLE}/{self._location}/training/{name.rpartition('/')[2]}?project={self._project}"
