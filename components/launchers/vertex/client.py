"""Sends requests about CustomJobs to Vertex AI.

Requests are repeated while the service does not answer, and a refusal becomes an error
that names the remedy.
"""

import contextlib
from typing import Any

from absl import logging
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import aiplatform
from google.cloud.aiplatform.utils import JobClientWithOverride
from google.cloud.aiplatform_v1.types import CustomJob
from google.protobuf import json_format

from tfx_distribute.components.launchers.custom_job import status as custom_job_status
from tfx_distribute.components.launchers.custom_job.service_errors import (
    CONSOLE,
    REQUEST_SECONDS,
    TRANSIENT_WHILE_FOLLOWING,
    UNAVAILABLE,
    call_vertex_ai,
    find_act_as_remedy,
)
from tfx_distribute.components.launchers.custom_job.spec import TRAINING_LABEL
from tfx_distribute.components.launchers.errors import GoneError, NoRoomError, NotFollowedError
from tfx_distribute.trainer_module.errors import ConfigurationError

LAST_REQUEST_SECONDS = 10.0  # for one answer, for a launcher that has to end
# For the service to answer when jobs are cancelled. After that, a chief ends by itself.
CANCEL_SECONDS = 120.0


class CustomJobClient:
    """Sends requests about the CustomJobs of one region of a project.

    Args:
      project: Google Cloud project.
      location: Region of the jobs.

    Raises:
      ConfigurationError: There are no credentials, or there is no such region.
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

    def create(self, spec: dict[str, Any]) -> CustomJob:
        """Creates a job, and only one even if an answer is lost.

        Raises:
          ConfigurationError: The service refuses it, or the SDK is too old for it.
          NoRoomError: A quota is used up.
        """
        message = CustomJob()
        try:
            json_format.ParseDict(spec, CustomJob.pb(message))
        except json_format.ParseError as error:
            raise ConfigurationError(
                f"the google-cloud-aiplatform of this image does not support all settings of this CustomJob ({error}); "
                "install a newer one"
            ) from error
        training = spec["labels"][TRAINING_LABEL]
        names_before = {job.name for job in self.list_jobs(training)}
        is_repeated = False

        def create_once() -> CustomJob:
            nonlocal is_repeated
            if is_repeated:  # the request before, without an answer, may have created a job
                created = [job for job in self.list_jobs(training) if job.name not in names_before]
                if created:
                    return created[0]
            is_repeated = True
            return self._client.create_custom_job(parent=self._parent, custom_job=message, timeout=REQUEST_SECONDS)

        try:
            # Without TooManyRequests: a quota that is used up does not pass soon.
            return call_vertex_ai(create_once, transient=UNAVAILABLE)
        except exceptions.GoogleAPICallError as error:
            raise self._explain(error) from error

    def get(self, name: str) -> CustomJob:
        """Returns a job with its current status.

        Raises:
          GoneError: It does not exist.
        """
        try:
            return call_vertex_ai(
                lambda: self._client.get_custom_job(name=name, timeout=REQUEST_SECONDS), TRANSIENT_WHILE_FOLLOWING
            )
        except exceptions.NotFound as error:
            raise GoneError(f"CustomJob {name} is gone: somebody has deleted it while it was training") from error
        except exceptions.GoogleAPICallError as error:
            raise self._explain(error) from error

    def list_jobs(self, training: str) -> list[CustomJob]:
        """Returns the jobs of a training, the latest first."""
        request = self._list_request(training)
        try:
            jobs = call_vertex_ai(lambda: list(self._client.list_custom_jobs(request=request, timeout=REQUEST_SECONDS)))
        except exceptions.GoogleAPICallError as error:
            raise self._explain(error) from error
        return sorted(jobs, key=lambda job: job.create_time, reverse=True)

    def cancel(self, training: str, name: str | None = None, *, has_time: bool = True) -> None:
        """Cancels unfinished jobs of a training; logs if it cannot.

        Args:
          training: Name of the training.
          name: Name of the only job to cancel; None for all of the training.
          has_time: True to repeat requests that the service does not answer. A launcher
            that has to end sends each once; the chief notices by itself that no
            launcher follows it.
        """
        request = self._list_request(training)

        def cancel() -> None:
            for job in self._client.list_custom_jobs(request=request, timeout=LAST_REQUEST_SECONDS):
                if name in (None, job.name) and not custom_job_status.has_ended(job):
                    logging.info("cancelling CustomJob %s", job.name)
                    with contextlib.suppress(exceptions.BadRequest):  # it has ended since
                        self._client.cancel_custom_job(name=job.name, timeout=LAST_REQUEST_SECONDS)

        try:
            call_vertex_ai(cancel, timeout_seconds=CANCEL_SECONDS if has_time else 0.0)
        except (exceptions.GoogleAPICallError, NotFollowedError) as error:
            logging.warning("cannot cancel training %s, which may run for another half an hour: %s", training, error)

    def console_url(self, job: CustomJob) -> str:
        """Returns the address of a job's page in the Google Cloud console."""
        number = job.name.rpartition("/")[2]
        return f"{CONSOLE}/vertex-ai/locations/{self._location}/training/{number}?project={self._project}"

    def log_url(self, job: CustomJob) -> str:
        """Returns the address of the page that shows what a job's processes print."""
        number = job.name.rpartition("/")[2]
        return f"{CONSOLE}/logs/viewer?project={self._project}&resource=ml_job%2Fjob_id%2F{number}"

    def _list_request(self, training: str) -> dict[str, str]:
        return {"parent": self._parent, "filter": f'labels.{TRAINING_LABEL}="{training}"'}

    def _explain(self, error: exceptions.GoogleAPICallError) -> ConfigurationError | NoRoomError:
        """Returns an error that explains a refusal and names the remedy."""
        where = f"{self._location} of project {self._project}"
        if isinstance(error, exceptions.Forbidden):
            return ConfigurationError(
                f"the service account of this step may not run a CustomJob in {where} ({error.message}); give it the role "
                "roles/aiplatform.user, and roles/iam.serviceAccountUser on targets.vertex.service_account"
            )
        if isinstance(error, exceptions.TooManyRequests):
            return NoRoomError(
                f"{where} has no room for this CustomJob ({error.message}); ask for a larger quota, or write fewer workers, "
                "another resources.Trainer.accelerator or another targets.vertex.region"
            )
        remedy = find_act_as_remedy(error.message, "the service account of this step")
        return ConfigurationError(f"Vertex AI refuses a CustomJob in {where}: {error.message}{remedy}")
