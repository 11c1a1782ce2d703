"""Submits a compiled pipeline to Vertex AI through its SDK and follows its run."""

import contextlib
import io
import json
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
from google.cloud.aiplatform_v1.types import PipelineJob, PipelineTaskDetail, PscInterfaceConfig

from tfx_distribute.components.launchers.custom_job import service_errors
from tfx_distribute.pipelines.runners.target import Submitted
from tfx_distribute.pipelines.runners.vertex import arguments, storage_places
from tfx_distribute.pipelines.runners.vertex.doctor import rest, storage_checks
from tfx_distribute.pipelines.runners.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError

POLL_SECONDS = 10.0
SUCCESS_STATES = ("succeeded",)
FINAL_STATES = (*SUCCESS_STATES, "failed", "cancelled")


@dataclass(frozen=True)
class Run:
    """A run to submit.

    Attributes:
      name: Name of the pipeline.
      document: The compiled pipeline, JSON.
      arguments: Values of the pipeline's parameters; others take their defaults.
      display_name: Name of the run; None for the pipeline's name.
      experiment: Vertex AI experiment of the run; None for no experiment.
      job_id: Id of the job; None for the pipeline's name, the time and a random suffix.
      labels: Labels in addition to those of the target.
    """

    name: str
    document: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    display_name: str | None = None
    experiment: str | None = None
    job_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Schedule:
    """Times of repeated runs; names are those of the SDK.

    Attributes:
      cron: Cron expression, such as `TZ=Europe/Zurich 0 3 * * 1-5`.
      start_time: Start of the schedule, RFC 3339; None for now.
      end_time: End of the schedule, RFC 3339; None for no end.
      max_run_count: Maximum number of runs in all; None for any number.
      max_concurrent_run_count: Maximum number of runs at a time.
    """

    cron: str
    start_time: str | None = None
    end_time: str | None = None
    max_run_count: int | None = None
    max_concurrent_run_count: int = 1


class Pipelines:
    """Vertex AI Pipelines of a project.

    ```python
    pipelines = Pipelines(target)
    submitted = pipelines.submit(Run("mine", document))
    state = pipelines.wait(submitted.id, print)
    ```

    Args:
      target: Project, region, and settings of all runs.

    Raises:
      ConfigurationError: The region does not exist.
    """

    def __init__(self, target: VertexSettings):
        self._target = target
        self._where = f"{target.region} of project {target.project}"
        initialize(target.project, target.region)

    def submit(self, run: Run) -> Submitted:
        """Runs a pipeline once.

        Args:
          run: The run to submit.

        Raises:
          ConfigurationError: The service refuses it.
        """
        self._check(run)
        with explaining_errors(self._where):
            job = self._make_job(run)
            self._add_interface(job._gca_resource)
            job.submit(service_account=self._target.service_account, network=self._target.network, experiment=run.experiment)
        return Submitted(job.resource_name, _make_address("runs", job.resource_name))

    def schedule(self, run: Run, schedule: Schedule) -> Submitted:
        """Creates a schedule that runs a pipeline repeatedly.

        Args:
          run: The run to repeat.
          schedule: Times of the runs.

        Raises:
          ConfigurationError: The service refuses it.
        """
        self._check(run)
        with explaining_errors(self._where):
            created = aiplatform.PipelineJobSchedule(self._make_job(run), run.display_name or run.name)
            self._add_interface(created._gca_resource.create_pipeline_job_request.pipeline_job)
            created.create(
                service_account=self._target.service_account,
                network=self._target.network,
                **{name: value for name, value in vars(schedule).items() if value is not None},
            )
        return Submitted(created.resource_name, _make_address("schedules", created.resource_name))

    def wait(self, run_id: str, report: Callable[[str], None]) -> str:
        """Follows a run until it ends.

        Args:
          run_id: Resource name of the run's job.
          report: Called with a line for each step whose state changes.

        Returns:
          The final state, one of `FINAL_STATES`.

        Raises:
          ConfigurationError: The service has stopped answering.
        """
        client = aiplatform.initializer.global_config.create_client(
            client_class=aiplatform.utils.PipelineJobClientWithOverride
        )
        states: dict[int, PipelineTaskDetail.State] = {}
        run_task = run_id.rpartition("/")[2]  # the task of the whole run
        while True:
            job = self._get_job(client, run_id)
            for task in job.job_detail.task_details:
                if task.task_name != run_task and states.get(task.task_id) != task.state:
                    states[task.task_id] = task.state
                    error = f": {task.error.message}" if task.error.message else ""
                    report(f"{task.task_name:28} {task.state.name.lower()}{error}")
            state = str(job.state.name.removeprefix("PIPELINE_STATE_").lower())
            if state in FINAL_STATES:
                if job.error.message:
                    report(job.error.message)
                return state
            time.sleep(POLL_SECONDS)

    def _check(self, run: Run) -> None:
        """Refuses wrong arguments, and a bucket that the SDK would create."""
        arguments.check(json.loads(run.document), run.arguments)
        root = storage_places.bucket_of(self._target.pipeline_root)
        check = storage_checks.bucket(root, self._target, in_region=bool(self._target.tensorboard))
        with rest.make_session() as session:
            finding = check.judge(rest.send_all(session, list(check.requests)))
        if finding.status == "fail":
            raise ConfigurationError(f"targets.vertex.pipeline_root: {finding.check} {finding.text}; {finding.remedy}")

    def _make_job(self, run: Run) -> aiplatform.PipelineJob:
        # The SDK reads files only.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{run.name}.json"
            file.write_text(run.document, encoding="utf-8")
            return aiplatform.PipelineJob(
                display_name=run.display_name or run.name,
                template_path=str(file),
                # The SDK's default has the time in seconds; two people may submit in
                # the same second.
                job_id=run.job_id or f"{run.name}-{datetime.now().strftime('%Y%m%d%H%M%S')}-{uuid.uuid4().hex[:4]}",
                pipeline_root=self._target.pipeline_root,
                parameter_values=dict(run.arguments),
                encryption_spec_key_name=self._target.encryption_spec_key_name,
                labels={**self._target.labels, **run.labels},
            )

    def _add_interface(self, job: PipelineJob) -> None:
        """Adds the interface to a network, for which the SDK has no argument."""
        if self._target.psc_interface_config:
            job.psc_interface_config = PscInterfaceConfig(self._target.psc_interface_config.model_dump())

    def _get_job(self, client: Any, job_name: str) -> Any:
        with explaining_errors(self._where):
            return service_errors.call_vertex_ai(
                lambda: client.get_pipeline_job(name=job_name, timeout=service_errors.REQUEST_SECONDS)
            )


def initialize(project: str | None, region: str | None) -> None:
    """Sets the project and region of the SDK; None for its defaults.

    Raises:
      ConfigurationError: The region does not exist.
    """
    try:
        aiplatform.init(project=project, location=region)
    except ValueError as error:
        raise ConfigurationError(f"--region: {region}: {error}") from error


@contextlib.contextmanager
def explaining_errors(where: str) -> Iterator[None]:
    """Silences the SDK's output, and turns its errors into `ConfigurationError`.

    Args:
      where: Region and project, for messages.
    """
    sdk_logger = logging.getLogger("google.cloud.aiplatform")
    sdk_logger.disabled = True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except auth_exceptions.GoogleAuthError as error:
        # The SDK hides missing credentials behind a missing project.
        reason = " ".join(str(error.__cause__ or error).split())
        raise ConfigurationError(
            f"there are no credentials for Google Cloud ({reason}); run `gcloud auth application-default login`, or have "
            "GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account"
        ) from error
    except exceptions.Forbidden as error:
        raise ConfigurationError(
            f"--project: you may not run pipelines in {where} ({error.message}); you need the roles "
            "roles/aiplatform.user, and roles/iam.serviceAccountUser on the service account"
        ) from error
    except (*service_errors.UNAVAILABLE, TrainingError) as error:
        raise ConfigurationError(f"Vertex AI in {where} does not answer: {error}") from error
    except exceptions.BadRequest as error:
        remedy = service_errors.find_act_as_remedy(error.message, "you")
        raise ConfigurationError(f"Vertex AI in {where} refuses: {error.message}{remedy}") from error
    except exceptions.GoogleAPICallError as error:
        raise ConfigurationError(f"Vertex AI in {where} refuses: {error.message}") from error
    except requests.exceptions.RequestException as error:
        raise ConfigurationError(f"Vertex AI in {where} does not answer: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"the SDK of Vertex AI refuses: {error}") from error
    finally:
        sdk_logger.disabled = False


def _make_address(kind: str, name: str) -> str:
    _, project, _, location, _, number = name.split("/")
    path = f"vertex-ai/locations/{location}/pipelines/{kind}/{number}"
    return f"{service_errors.CONSOLE}/{path}?project={project}"
