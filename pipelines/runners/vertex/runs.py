"""Lists, shows and cancels pipeline jobs of Vertex AI, through its SDK."""

from typing import Any

from google.cloud import aiplatform
from google.protobuf import json_format

from tfx_distribute.components.launchers.custom_job import service_errors
from tfx_distribute.pipelines.runners.remote_runs import RemoteRun, RemoteRuns, RemoteTask, seconds_between
from tfx_distribute.pipelines.runners.vertex import client as client_lib

PAGE_SIZE = 100


class VertexRuns(RemoteRuns):
    """The pipeline jobs of a project in a region.

    ```python
    latest = VertexRuns("example-project", "europe-west4").list_runs(10)
    ```

    Args:
      project: Google Cloud project; None for the SDK's default.
      region: Region; None for the SDK's default.

    Raises:
      ConfigurationError: There is no project, or the region does not exist.
    """

    def __init__(self, project: str | None, region: str | None):
        where = f"{region or 'the default region'} of {f'project {project}' if project else 'the default project'}"
        self._explaining_errors = lambda: client_lib.explaining_errors(where)
        with self._explaining_errors():
            client_lib.initialize(project, region)
            config = aiplatform.initializer.global_config
            self._parent = f"projects/{config.project}/locations/{config.location}"
            self._client = config.create_client(client_class=aiplatform.utils.PipelineJobClientWithOverride)

    def list_runs(self, limit: int) -> list[RemoteRun]:
        """Returns jobs, the latest first."""
        request = {"parent": self._parent, "page_size": min(limit, PAGE_SIZE), "order_by": "create_time desc"}
        with self._explaining_errors():
            pager = service_errors.call_vertex_ai(
                lambda: self._client.list_pipeline_jobs(request=request, timeout=service_errors.REQUEST_SECONDS)
            )
            return [to_run(job) for job, _ in zip(pager, range(limit), strict=False)]

    def get(self, run_id: str) -> RemoteRun:
        """Returns a job with its parameters and tasks."""
        with self._explaining_errors():
            return to_run(
                service_errors.call_vertex_ai(
                    lambda: self._client.get_pipeline_job(name=self._name(run_id), timeout=service_errors.REQUEST_SECONDS)
                )
            )

    def cancel(self, run_id: str) -> None:
        """Asks Vertex AI to cancel a job."""
        with self._explaining_errors():
            service_errors.call_vertex_ai(
                lambda: self._client.cancel_pipeline_job(name=self._name(run_id), timeout=service_errors.REQUEST_SECONDS)
            )

    def _name(self, run_id: str) -> str:
        return run_id if "/" in run_id else f"{self._parent}/pipelineJobs/{run_id}"


def to_run(job: Any) -> RemoteRun:
    """Converts a pipeline job, without the task of the whole run."""
    ident = job.name.rpartition("/")[2]
    tasks = tuple(
        RemoteTask(
            task.task_name,
            task.state.name.lower(),
            seconds_between(task.start_time or None, task.end_time or None),
            task.error.message,
        )
        for task in job.job_detail.task_details
        if task.task_name != ident
    )
    config = json_format.MessageToDict(type(job).pb(job).runtime_config)
    parameters = {name: next(iter(value.values()), None) for name, value in config.get("parameters", {}).items()}
    return RemoteRun(
        id=ident,
        name=job.display_name or ident,
        state=job.state.name.removeprefix("PIPELINE_STATE_").lower(),
        started=job.create_time.timestamp() if job.create_time else None,
        seconds=seconds_between(job.create_time or None, job.end_time or None),
        parameters={**parameters, **config.get("parameterValues", {})},
        tasks=tasks,
        error=job.error.message,
    )
