"""Converts runs and schedules of Kubeflow Pipelines. Pure."""

import re
from typing import Any

from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.remote_runs import FINAL_STATES, RemoteRun, RemoteSchedule, RemoteTask, seconds_between

# Names of tasks that Kubeflow Pipelines, or we, add to each run.
BACKEND_TASKS = {"root", "executor", pipeline_ir.WHOLE}

_TRY = re.compile(r"\(\d+\)$")  # as in `Trainer(0)`


def to_schedule(recurring: Any) -> RemoteSchedule:
    """Converts a recurring run of kfp."""
    trigger = recurring.trigger
    cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else ""
    return RemoteSchedule(
        id=recurring.recurring_run_id,
        name=recurring.display_name or recurring.recurring_run_id,
        state=str(recurring.status or "").lower(),
        cron=cron or "",
    )


def to_run(run: Any) -> RemoteRun:
    """Converts a run of kfp: its steps in the order of their start, no added tasks."""
    details = (run.run_details.task_details or []) if run.run_details else []
    steps = [task for task in details if not _is_added(task)]
    state = str(run.state or "pending").lower()
    tasks = tuple(
        RemoteTask(
            task.display_name,
            _read_state(task, has_ended=state in FINAL_STATES),
            seconds_between(task.start_time or task.create_time, task.end_time),
            task.error.message if task.error and task.error.message else "",
        )
        for task in sorted(steps, key=lambda task: task.start_time or task.create_time)
    )
    return RemoteRun(
        id=run.run_id,
        name=run.display_name or run.run_id,
        state=state,
        started=run.created_at.timestamp() if run.created_at else None,
        seconds=seconds_between(run.created_at, run.finished_at),
        parameters=dict((run.runtime_config.parameters or {}) if run.runtime_config else {}),
        tasks=tasks,
        error=run.error.message if run.error and run.error.message else "",
    )


def _read_state(task: Any, has_ended: bool) -> str:
    """Returns the state of a task; `unknown` if it seems to go on after the run's end.

    The server does not update the tasks of a workflow that Argo has compressed.
    """
    state = str(task.state or "").lower()
    return "unknown" if has_ended and state in ("pending", "running") else state


def _is_added(task: Any) -> bool:
    """Returns True for a task that the backend adds to each run.

    Those are drivers and executors, each try of a task, records of launchers, which
    have no name, and the workflow itself, whose name is a prefix of its pods' names.
    Observed with 2.17.
    """
    name, children = (task.display_name or "").removesuffix(".onExit"), task.child_tasks or ()
    is_workflow = any((child.pod_name or "").rpartition("-")[0] == name for child in children)
    is_backend = name in BACKEND_TASKS or name.endswith("-driver") or is_workflow
    return not name or is_backend or _TRY.search(name) is not None
