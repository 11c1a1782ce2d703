"""Submits a compiled pipeline to Vertex AI through the `google-cloud-aiplatform` SDK, and follows its job."""

import contextlib
import io
import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import aiplatform
from google.cloud.aiplatform_v1.types import PipelineJob, PipelineState, PipelineTaskDetail

from tfx_distribute.components.launchers.custom_job import service_errors
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 10.0
SUCCESS_STATE = "succeeded"
ENDED = (
    PipelineState.PIPELINE_STATE_SUCCEEDED,
    PipelineState.PIPELINE_STATE_FAILED,
    PipelineState.PIPELINE_STATE_CANCELLED,
)


@dataclass(frozen=True)
class Schedule:
    """When a pipeline is run, again and again; the SDK's own names.

    Attributes:
      cron: When, such as `TZ=Europe/Zurich 0 3 * * 1-5`.
      start_time: From when on, RFC 3339; None for at once.
      end_time: Until when, RFC 3339; None for ever.
      max_run_count: Runs in all; None for any number.
      max_concurrent_run_count: Runs at a time.
    """

    cron: str
    start_time: str | None = None
    end_time: str | None = None
    max_run_count: int | None = None
    max_concurrent_run_count: int = 1


@dataclass(frozen=True)
class Run:
    """What is submitted.

    Attributes:
      name: Name of the pipeline.
      document: The compiled pipeline, JSON.
      arguments: Values of its parameters; others take their defaults.
      display_name: What people see; None for the pipeline's name.
      job_id: Id of the job; None for the pipeline's name, the time and a random word.
      experiment: Vertex AI experiment that the run belongs to; None for none.
      labels: Labels beside those of the pipeline.
    """

    name: str
    document: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    display_name: str | None = None
    job_id: str | None = None
    experiment: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Submitted:
    """A job, or a schedule.

    Attributes:
      name: Name of the resource.
      address: Where a browser shows it.
    """

    name: str
    address: str


class Pipelines:
    """Vertex AI Pipelines of a project.

    Args:
      target: Where, and as whom.

    Raises:
      ConfigurationError: There is no such region.
    """

    def __init__(self, target: VertexSettings):
        self._target = target
        self._where = f"{target.region} of project {target.project}"
        try:
            aiplatform.init(project=target.project, location=target.region)
        except ValueError as error:
            raise ConfigurationError(f"--region: {target.region}: {error}") from error

    def submit(self, run: Run) -> Submitted:
        """Runs a pipeline once.

        Args:
          run: What is run.

        Raises:
          ConfigurationError: The service refuses it.
        """
        with self._explained():
            job = self._job(run)
            job.submit(service_account=self._target.service_account, network=self._target.network, experiment=run.experiment)
        return Submitted(job.resource_name, self._address("runs", job.resource_name))

    def schedule(self, run: Run, schedule: Schedule) -> Submitted:
        """Has a pipeline run again and again.

        Args:
          run: What is run.
          schedule: When.

        Raises:
          ConfigurationError: The service refuses it.
        """
        with self._explained():
            made = self._job(run).create_schedule(
                display_name=run.display_name or run.name,
                service_account=self._target.service_account,
                network=self._target.network,
                **{name: value for name, value in vars(schedule).items() if value is not None},
            )
        return Submitted(made.resource_name, self._address("schedules", made.resource_name))

    def _job(self, run: Run) -> aiplatform.PipelineJob:
        # The SDK reads files only.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{run.name}.json"
            file.write_text(run.document, encoding="utf-8")
            return aiplatform.PipelineJob(
                display_name=run.display_name or run.name,
                template_path=str(file),
                # The SDK's own has the time to the second, and two may submit in the same.
                job_id=run.job_id or f"{run.name}-{datetime.now().strftime('%Y%m%d%H%M%S')}-{uuid.uuid4().hex[:4]}",
                pipeline_root=self._target.pipeline_root,
                parameter_values=dict(run.arguments),
                encryption_spec_key_name=self._target.encryption_spec_key_name,
                labels={**self._target.labels, **run.labels},
            )

    def wait(self, name: str, told: Callable[[str], None]) -> str:
        """Follows a job to its end.

        Args:
          name: Name of the job.
          told: Called with a line on each step that changes its state.

        Returns:
          How it ended: `succeeded`, `failed` or `cancelled`.

        Raises:
          ConfigurationError: The service does not answer any more.
        """
        client = aiplatform.initializer.global_config.create_client(
            client_class=aiplatform.utils.PipelineJobClientWithOverride
        )
        seen: dict[int, PipelineTaskDetail.State] = {}
        while True:
            with self._explained():
                job = service_errors.call_with_retries(
                    lambda: client.get_pipeline_job(name=name, timeout=service_errors.REQUEST_SECONDS)
                )
            for task in job.job_detail.task_details:
                if task.task_name != name.rpartition("/")[2] and seen.get(task.task_id) != task.state:  # the run's own
                    seen[task.task_id] = task.state
                    error = f": {task.error.message}" if task.error.message else ""
                    told(f"{task.task_name:28} {task.state.name.lower()}{error}")
            if job.state in ENDED:
                if job.error.message:
                    told(job.error.message)
                return _word(job)
            time.sleep(POLL_SECONDS)

    def _address(self, kind: str, name: str) -> str:
        _, project, _, location, _, number = name.split("/")
        path = f"vertex-ai/locations/{location}/pipelines/{kind}/{number}"
        return f"{service_errors.CONSOLE}/{path}?project={project}"

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Has the SDK print nothing of its own, and what it raises say what to do."""
        chatter = logging.getLogger("google.cloud.aiplatform")
        chatter.disabled = True
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        except (auth_exceptions.DefaultCredentialsError, auth_exceptions.RefreshError) as error:
            raise ConfigurationError(
                f"there are no credentials for Google Cloud ({error}); run `gcloud auth application-default login`, or have "
                "GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account"
            ) from error
        except exceptions.Forbidden as error:
            raise ConfigurationError(
                f"--project: you may not run pipelines in {self._where} ({error.message}); you need the roles "
                "roles/aiplatform.user, and roles/iam.serviceAccountUser on the service account"
            ) from error
        except (*service_errors.UNAVAILABLE, TrainingError) as error:
            raise ConfigurationError(f"Vertex AI in {self._where} does not answer: {error}") from error
        except exceptions.GoogleAPICallError as error:
            raise ConfigurationError(f"Vertex AI in {self._where} refuses: {error.message}") from error
        except requests.exceptions.RequestException as error:
            raise ConfigurationError(f"Vertex AI in {self._where} does not answer: {error}") from error
        except ValueError as error:
            raise ConfigurationError(f"the SDK of Vertex AI refuses: {error}") from error
        finally:
            chatter.disabled = False


def _word(job: PipelineJob) -> str:
    return str(job.state.name.removeprefix("PIPELINE_STATE_").lower())
