"""Requests about CustomJobs to Vertex AI: patient ones, whose refusals say what to do."""

import contextlib
from typing import Any

from absl import logging
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import aiplatform
from google.cloud.aiplatform.utils import JobClientWithOverride
from google.cloud.aiplatform_v1.types import CustomJob, JobState
from google.protobuf import json_format

from tfx_distribute.components.launchers import retry
from tfx_distribute.components.launchers.custom_job import service_errors
from tfx_distribute.components.launchers.custom_job.service_errors import CONSOLE, REQUEST_SECONDS
from tfx_distribute.components.launchers.custom_job.spec import TRAINING_LABEL
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

CANCEL_SECONDS = 10.0  # for the last requests, of whoever is told to end
ENDED = (
    JobState.JOB_STATE_SUCCEEDED,
    JobState.JOB_STATE_PARTIALLY_SUCCEEDED,
    JobState.JOB_STATE_FAILED,
    JobState.JOB_STATE_CANCELLED,
    JobState.JOB_STATE_EXPIRED,
)


class CustomJobClient:
    """Requests about CustomJobs.

    Args:
      project: Google Cloud project.
      location: Its region.

    Raises:
      ConfigurationError: There are no credentials.
    """

    def __init__(self, project: str, location: str):
        self._project, self._location = project, location
        self._parent = f"projects/{project}/locations/{location}"
        try:
            aiplatform.init(project=project, location=location)
            self._client = aiplatform.initializer.global_config.create_client(client_class=JobClientWithOverride)
        except auth_exceptions.DefaultCredentialsError as error:
            raise ConfigurationError(f"there are no credentials for Google Cloud: {error}") from error
        except ValueError as error:  # a region that the SDK does not know
            raise ConfigurationError(f"targets.vertex.region: {location}: {error}") from error

    def create(self, request: dict[str, Any]) -> CustomJob:
        """Creates one; one only, also where an answer is lost."""
        message = CustomJob()
        try:
            json_format.ParseDict(request, CustomJob.pb(message))
        except json_format.ParseError as error:
            raise ConfigurationError(
                f"the google-cloud-aiplatform of this image does not know all that is asked for ({error}); install a "
                "newer one"
            ) from error
        training = request["labels"][TRAINING_LABEL]
        before = {job.name for job in self.of(training)}
        tries = 0

        def create() -> CustomJob:
            nonlocal tries
            tries += 1
            made = [job for job in self.of(training) if job.name not in before] if tries > 1 else []
            if made:  # by a try that was not answered
                return made[0]
            return self._client.create_custom_job(parent=self._parent, custom_job=message, timeout=REQUEST_SECONDS)

        try:
            # A quota that is used up is an answer too.
            return retry.call_with_retries(create, "Vertex AI", lambda error: isinstance(error, service_errors.UNAVAILABLE))
        except exceptions.GoogleAPICallError as error:
            raise self._explained(error) from error

    def get(self, name: str) -> CustomJob:
        """What the service knows of it."""
        try:
            return service_errors.call_with_retries(lambda: self._client.get_custom_job(name=name, timeout=REQUEST_SECONDS))
        except exceptions.NotFound as error:
            raise TrainingError(f"CustomJob {name} is gone: somebody has deleted it while it was training") from error
        except exceptions.GoogleAPICallError as error:
            raise self._explained(error) from error

    def of(self, training: str) -> list[CustomJob]:
        """Those of a training, the latest first."""
        request = self._of(training)
        try:
            found = service_errors.call_with_retries(
                lambda: list(self._client.list_custom_jobs(request=request, timeout=REQUEST_SECONDS))
            )
        except exceptions.GoogleAPICallError as error:
            raise self._explained(error) from error
        return sorted(found, key=lambda job: job.create_time, reverse=True)

    def _of(self, training: str) -> dict[str, str]:
        return {"parent": self._parent, "filter": f'labels.{TRAINING_LABEL}="{training}"'}

    def cancel(self, training: str) -> None:
        """Cancels those of a training that go on."""
        # One try: whoever is told to end has no time. The chief notices by itself that nobody follows.
        request = self._of(training)
        with contextlib.suppress(exceptions.GoogleAPICallError, *service_errors.UNAVAILABLE):
            for job in self._client.list_custom_jobs(request=request, timeout=CANCEL_SECONDS):
                if job.state not in ENDED:
                    logging.info("cancelling CustomJob %s", job.name)
                    self._client.cancel_custom_job(name=job.name, timeout=CANCEL_SECONDS)

    def console(self, job: CustomJob) -> str:
        """Where a person sees it."""
        number = job.name.rpartition("/")[2]
        return f"{CONSOLE}/vertex-ai/locations/{self._location}/training/{number}?project={self._project}"

    def logs(self, job: CustomJob) -> str:
        """Where a person reads what its processes print."""
        number = job.name.rpartition("/")[2]
        return f"{CONSOLE}/logs/viewer?project={self._project}&resource=ml_job%2Fjob_id%2F{number}"

    def _explained(self, error: exceptions.GoogleAPICallError) -> ConfigurationError:
        """What an answer means to a person."""
        where = f"{self._location} of project {self._project}"
        if isinstance(error, exceptions.Forbidden):
            return ConfigurationError(
                f"the service account of this step may not run a CustomJob in {where} ({error.message}); give it the role "
                "roles/aiplatform.user, and roles/iam.serviceAccountUser on targets.vertex.service_account"
            )
        if isinstance(error, exceptions.TooManyRequests):
            return ConfigurationError(
                f"{where} has no room for this CustomJob ({error.message}); ask for a larger quota, or write fewer workers, "
                "another resources.Trainer.accelerator or another targets.vertex.region"
            )
        return ConfigurationError(f"Vertex AI refuses a CustomJob in {where}: {error.message}")
