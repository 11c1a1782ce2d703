"""Submits compiled pipelines to Vertex AI; follows, lists and cancels their runs."""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from google.cloud.aiplatform import utils
from google.cloud.aiplatform_v1.types import PipelineJob, Schedule
from google.protobuf import json_format

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.vertex import service
from tfx_distribute.pipelines.targets.remote_runs import (
    RemoteRun,
    RemoteRuns,
    RemoteSchedule,
    RemoteTask,
    ScheduleChange,
    seconds_between,
)
from tfx_distribute.pipelines.targets.target import Submitted
from tfx_distribute.pipelines.targets.vertex.settings import VertexSettings
from tfx_distribute.trainer_module.errors import ConfigurationError, TrainingError


class VertexRuns(RemoteRuns):
    """The pipeline jobs of a project in a region.

    None for `project` is that of the credentials, for `region` the SDK's default.

    Raises:
      ConfigurationError: There are no credentials, or the region does not exist. So do
        all methods if the service refuses, or does not answer.
    """

    def __init__(self, project: str | None, region: str | None):
        self._client, self._parent = service.connect(utils.PipelineJobClientWithOverride, project, region)
        self._schedules, _ = service.connect(utils.ScheduleClientWithOverride, project, region)

    def submit(self, job: Mapping[str, Any], schedule: Mapping[str, Any] | None = None) -> Submitted:
        """Runs a pipeline once, or on a schedule; `job` is JSON, see `make_job`.

        `schedule` has fields of the API's Schedule, such as `cron` and `end_time`.
        """
        if schedule:
            request = {"parent": self._parent, "pipeline_job": job}
            document = {"max_concurrent_run_count": 1, **schedule, "display_name": job["displayName"]}
            message = service.parse(Schedule, {**document, "create_pipeline_job_request": request})
            with _explaining_errors():
                made = self._schedules.create_schedule(
                    parent=self._parent, schedule=message, timeout=timeouts.REQUEST_SECONDS
                )
            return Submitted(made.name, _make_address("schedules", made.name))
        # Two people may submit in the same second.
        suffix = f"{datetime.now().strftime('%Y%m%d%H%M%S')}-{uuid.uuid4().hex[:4]}"
        with _explaining_errors():
            created = self._client.create_pipeline_job(
                parent=self._parent,
                pipeline_job=service.parse(PipelineJob, job),
                pipeline_job_id=f"{job['pipelineSpec']['pipelineInfo']['name']}-{suffix}",
                timeout=timeouts.REQUEST_SECONDS,
            )
        return Submitted(created.name, _make_address("runs", created.name))

    def list_runs(self, limit: int) -> list[RemoteRun]:
        """Returns jobs, the latest first."""
        request = {"parent": self._parent, "order_by": "create_time desc"}
        with _explaining_errors():
            pager = service.call(lambda: self._client.list_pipeline_jobs(request, timeout=timeouts.REQUEST_SECONDS))
            return [_to_run(job) for job in itertools.islice(pager, limit)]

    def get(self, run_id: str, patience_seconds: float = 0.0) -> RemoteRun:
        """Returns a job with its parameters and tasks; `service` is patient anyway."""
        return _to_run(self._call(self._client.get_pipeline_job, "pipelineJobs", run_id))

    def cancel(self, run_id: str) -> None:
        """Asks Vertex AI to cancel a job."""
        self._call(self._client.cancel_pipeline_job, "pipelineJobs", run_id)

    def list_schedules(self, limit: int) -> list[RemoteSchedule]:
        """Returns schedules, the latest first."""
        request = {"parent": self._parent, "order_by": "create_time desc"}
        with _explaining_errors():
            pager = service.call(lambda: self._schedules.list_schedules(request, timeout=timeouts.REQUEST_SECONDS))
            return [
                RemoteSchedule(
                    id=str(schedule.name.rpartition("/")[2]),
                    name=schedule.display_name,
                    state=str(schedule.state.name.lower()),
                    cron=schedule.cron,
                    next_run=schedule.next_run_time.timestamp() if schedule.next_run_time else None,
                )
                for schedule in itertools.islice(pager, limit)
            ]

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        """Pauses, resumes or deletes a schedule."""
        self._call(getattr(self._schedules, f"{change}_schedule"), "schedules", schedule_id)

    def _call(self, request: Callable[..., Any], kind: str, number: str) -> Any:
        """Sends a request about a job or schedule, given by its number or full name."""
        name = number if "/" in number else f"{self._parent}/{kind}/{number}"
        with _explaining_errors():
            return service.call(lambda: request(name=name, timeout=timeouts.REQUEST_SECONDS))


@contextlib.contextmanager
def _explaining_errors() -> Iterator[None]:
    try:
        with service.explaining_errors():
            yield
    except TrainingError as error:  # a used-up quota, or no answer for long
        raise ConfigurationError(str(error)) from error


def make_job(
    document: Mapping[str, Any],
    target: VertexSettings,
    display_name: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns a compiled PipelineJob with the settings of a run, JSON.

    A `display_name` of None is the pipeline's name. `labels` are added to those of the
    compiled job.
    """
    key = target.encryption_spec_key_name
    fields = {
        "displayName": display_name,
        "labels": {**document.get("labels", {}), **(labels or {})},
        "serviceAccount": target.service_account,
        "network": target.network,
        "encryptionSpec": {"kmsKeyName": key} if key else None,
        "pscInterfaceConfig": target.psc_interface_config,
    }
    return {**document, **{name: value for name, value in fields.items() if value}}


def _to_run(job: PipelineJob) -> RemoteRun:
    ident = str(job.name.rpartition("/")[2])
    tasks = tuple(
        RemoteTask(
            task.task_name,
            task.state.name.lower(),
            seconds_between(task.start_time or None, task.end_time or None),
            task.error.message,
        )
        for task in job.job_detail.task_details
        if task.task_name != ident  # that of the whole run
    )
    config = json_format.MessageToDict(PipelineJob.pb(job).runtime_config)
    parameters = {name: next(iter(value.values()), None) for name, value in config.get("parameters", {}).items()}
    return RemoteRun(
        id=ident,
        name=job.display_name or ident,
        state=str(job.state.name.removeprefix("PIPELINE_STATE_").lower()),
        started=job.create_time.timestamp() if job.create_time else None,
        seconds=seconds_between(job.create_time or None, job.end_time or None),
        parameters={**parameters, **config.get("parameterValues", {})},
        tasks=tasks,
        error=job.error.message,
    )


def _make_address(kind: str, name: str) -> str:
    _, project, _, location, _, number = name.split("/")
    return f"{service.CONSOLE}/{location}/pipelines/{kind}/{number}?project={project}"
