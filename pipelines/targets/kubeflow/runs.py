"""Lists and changes runs and schedules on Kubeflow Pipelines, through kfp."""

from typing import Any

from tfx_distribute.pipelines.targets.kubeflow.client import BACKEND_TASKS, Pipelines
from tfx_distribute.pipelines.targets.remote_runs import (
    RemoteRun,
    RemoteRuns,
    RemoteSchedule,
    RemoteTask,
    ScheduleChange,
    seconds_between,
)

PAGE_SIZE = 100
_CHANGES = {"pause": "disable", "resume": "enable", "delete": "delete"}  # kfp's words


class KubeflowRuns(Pipelines, RemoteRuns):
    """The runs and recurring runs of an installation of Kubeflow Pipelines.

    ```python
    latest = KubeflowRuns("http://localhost:8080").list_runs(10)
    ```
    """

    def list_runs(self, limit: int) -> list[RemoteRun]:
        """Returns runs, the latest first."""
        return [to_run(run) for run in self._list("runs", limit)]

    def _list(self, kind: str, limit: int) -> list[Any]:
        """Returns `runs` or `recurring_runs` of kfp, the latest first."""
        listed: list[Any] = []
        token = ""
        with self.explaining_errors():
            while len(listed) < limit:
                page = getattr(self.client, f"list_{kind}")(
                    page_token=token,
                    page_size=min(limit - len(listed), PAGE_SIZE),
                    sort_by="created_at desc",
                    namespace=self.namespace,
                )
                listed += getattr(page, kind) or ()
                token = page.next_page_token or ""
                if not token:
                    break
        return listed

    def get(self, run_id: str) -> RemoteRun:
        """Returns a run with its parameters and tasks."""
        with self.explaining_errors():
            return to_run(self.client.call("run", "get_run", run_id))

    def cancel(self, run_id: str) -> None:
        """Asks Kubeflow Pipelines to terminate a run."""
        with self.explaining_errors():
            self.client.call("run", "terminate_run", run_id)

    def list_schedules(self, limit: int) -> list[RemoteSchedule]:
        """Returns recurring runs, the latest first."""
        return [_to_schedule(recurring) for recurring in self._list("recurring_runs", limit)]

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        """Disables, enables or deletes a recurring run."""
        with self.explaining_errors():
            getattr(self.client, f"{_CHANGES[change]}_recurring_run")(schedule_id)


def _to_schedule(recurring: Any) -> RemoteSchedule:
    trigger = recurring.trigger
    cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else ""
    return RemoteSchedule(
        id=recurring.recurring_run_id,
        name=recurring.display_name or recurring.recurring_run_id,
        state=str(recurring.status or "").lower(),
        cron=cron or "",
    )


def to_run(run: Any) -> RemoteRun:
    """Converts a run of kfp, without the tasks that the backend adds."""
    details = (run.run_details.task_details or []) if run.run_details else []
    tasks = tuple(
        RemoteTask(
            task.display_name,
            str(task.state or "").lower(),
            seconds_between(task.start_time or task.create_time, task.end_time),
            task.error.message if task.error and task.error.message else "",
        )
        for task in details
        if not _is_added(task.display_name, run.run_id)
    )
    return RemoteRun(
        id=run.run_id,
        name=run.display_name or run.run_id,
        state=str(run.state or "pending").lower(),
        started=run.created_at.timestamp() if run.created_at else None,
        seconds=seconds_between(run.created_at, run.finished_at),
        parameters=dict((run.runtime_config.parameters or {}) if run.runtime_config else {}),
        tasks=tasks,
        error=run.error.message if run.error and run.error.message else "",
    )


def _is_added(name: str, run_id: str) -> bool:
    """Returns True for a task that the backend adds to each run.

    Those are drivers and executors, and the node of the whole workflow, whose name ends
    with the beginning of the run's id.
    """
    is_workflow = name.endswith(tuple(f"-{run_id[:length]}" for length in (5, 8)))
    return name in BACKEND_TASKS or name.endswith("-driver") or is_workflow
