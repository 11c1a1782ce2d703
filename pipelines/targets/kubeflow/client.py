"""Submits to Kubeflow Pipelines through kfp; follows, lists and cancels its runs."""

import contextlib
import io
import json
import logging
import re
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import kfp_server_api
import urllib3
from google.auth import exceptions as google_errors

from tfx_distribute.components import timeouts
from tfx_distribute.pipelines.targets import pipeline_ir
from tfx_distribute.pipelines.targets.kubeflow.settings import KubeflowSettings
from tfx_distribute.pipelines.targets.remote_runs import (
    FINAL_STATES,
    RemoteRun,
    RemoteRuns,
    RemoteSchedule,
    RemoteTask,
    ScheduleChange,
    seconds_between,
)
from tfx_distribute.pipelines.targets.target import Submitted
from tfx_distribute.trainer_module.errors import ConfigurationError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kfp

_UNAUTHORIZED = (401, 403)
PAGE_SIZE = 100
_CHANGES = {"pause": "disable", "resume": "enable", "delete": "delete"}  # kfp's words
_ADDRESS = (
    "write the address of its API, such as http://localhost:8080 after `kubectl port-forward -n kubeflow "
    "svc/ml-pipeline-ui 8080:80`"
)
# Names of tasks that Kubeflow Pipelines, or we, add to each run.
BACKEND_TASKS = {"root", "executor", pipeline_ir.WHOLE}

_TRY = re.compile(r"\(\d+\)$")  # as in `Trainer(0)`
_RETRY_LOGGER = logging.getLogger("urllib3.connectionpool")  # logs each attempt


class _Client(kfp.Client):
    """kfp's client with a different health check.

    kfp's own asks five times in 25 seconds for any answer, and hides the error.
    """

    def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
        return self.call("healthz", "get_healthz")

    def call(self, service: str, operation: str, *arguments: str) -> Any:
        """Calls an operation of the API, with a time limit.

        `operation` is as kfp 2.5 has it; later versions put the name of its service in
        front, such as `run`.
        """
        operations = vars(getattr(self, f"{service}s"))
        function = operations.get(operation) or operations[f"{service}_service_{operation}"]
        return function(*arguments, _request_timeout=timeouts.HTTP_SECONDS)


class KubeflowRuns(RemoteRuns):
    """The runs and recurring runs of an installation of Kubeflow Pipelines.

    A `host` of None is the one that kfp finds. `namespace` is that of the user's runs,
    None in an installation for one user. Raises a ConfigurationError if the API does
    not answer, or refuses the credentials.
    """

    def __init__(self, host: str | None = None, namespace: str | None = None, existing_token: str | None = None):
        self._host = host or "the default address of kfp"
        login = {"host": host, "namespace": namespace, "existing_token": existing_token}
        with self.explaining_errors():
            self.client = _Client(**{name: value for name, value in login.items() if value is not None})
            is_multi_user = self.client.get_kfp_healthz().multi_user
        self.namespace = namespace or self.client.get_user_namespace() or None
        if is_multi_user is None:
            raise ConfigurationError(
                f"--host: what answers at {self._host} is not the API of Kubeflow Pipelines; if it is a login page, "
                "see the option --existing-token"
            )
        if is_multi_user and not self.namespace:
            raise ConfigurationError(
                f"--namespace: is missing; Kubeflow Pipelines at {self._host} has several users: write your namespace"
            )

    def submit(
        self,
        name: str,
        document: str,
        settings: KubeflowSettings,
        arguments: Mapping[str, Any],
        display_name: str | None = None,
        schedule: Mapping[str, Any] | None = None,
    ) -> Submitted:
        """Runs a pipeline once, or on a schedule.

        Uploads it, as a new version if there is a pipeline of that name. Without
        `display_name`, the run has the name of the version. `schedule` has `cron`, with
        five fields, and what else the command `submit` takes for one.
        """
        # The time is for people to read; two people may submit in the same second.
        version = f"{name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
        output = io.StringIO()
        with self.explaining_errors(), contextlib.redirect_stdout(output):
            uploaded = self._upload(name, document, version)
            created = self.client.create_experiment(settings.experiment or "Default", namespace=self.namespace)
            request = {
                "experiment_id": created.experiment_id,
                "job_name": display_name or version,
                "params": dict(arguments),
                "pipeline_id": uploaded.pipeline_id,
                "version_id": uploaded.pipeline_version_id,
                "pipeline_root": settings.pipeline_root,
                "service_account": settings.service_account,
            }
            if schedule:
                recurring = self.client.create_recurring_run(
                    cron_expression=f"0 {schedule['cron']}",  # its first field are seconds
                    start_time=schedule.get("start_time"),
                    end_time=schedule.get("end_time"),
                    max_concurrency=schedule.get("max_concurrent_run_count", 1),
                    no_catchup=schedule.get("no_catchup", False),
                    **request,
                )
                return Submitted(recurring.recurring_run_id, recurring.recurring_run_id)
            started = self.client.run_pipeline(**request)
        # Only kfp knows the address of the run's page, and it only prints it.
        address = re.search(r"Run details: (\S+)", output.getvalue())
        return Submitted(started.run_id, address[1] if address else started.run_id)

    def list_runs(self, limit: int) -> list[RemoteRun]:
        """Returns runs, the latest first."""
        return [_to_run(run) for run in self._list("runs", limit)]

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

    def get(self, run_id: str, patience_seconds: float = 0.0) -> RemoteRun:
        """Returns a run with its parameters and tasks."""
        deadline = time.monotonic() + patience_seconds
        with self.explaining_errors():
            while True:
                try:
                    run = self.client.call("run", "get_run", run_id)
                    # kfp reads a login page as a run without any values.
                    if run.run_id == run_id:
                        return _to_run(run)
                    raise kfp_server_api.ApiException(status=_UNAUTHORIZED[0], reason="a page answers, not the API")
                except (kfp_server_api.ApiException, urllib3.exceptions.HTTPError) as error:
                    status = getattr(error, "status", None)
                    if (status and 400 <= status < 500 and status != 429) or time.monotonic() >= deadline:
                        raise
                time.sleep(timeouts.RUN_POLL_SECONDS)

    def cancel(self, run_id: str) -> None:
        """Asks Kubeflow Pipelines to terminate a run."""
        with self.explaining_errors():
            self.client.call("run", "terminate_run", run_id)

    def list_schedules(self, limit: int) -> list[RemoteSchedule]:
        """Returns recurring runs, the latest first."""
        return [_to_schedule(recurring) for recurring in self._list("recurring_runs", limit)]

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        """Disables, enables or deletes a recurring run.

        Raises:
          ConfigurationError: One of its runs is in progress. The server would delete
            the pods of that run with the recurring run, which owns its workflow.
        """
        if change == "delete":
            for run in self._list("runs", PAGE_SIZE):
                if run.recurring_run_id == schedule_id and _to_run(run).state not in FINAL_STATES:
                    raise ConfigurationError(
                        f"schedule {schedule_id}: Kubeflow Pipelines would delete the pods of run {run.run_id} with it; "
                        f"write `schedules pause` and delete it once the run has ended, or `runs cancel {run.run_id}` first"
                    )
        with self.explaining_errors():
            getattr(self.client, f"{_CHANGES[change]}_recurring_run")(schedule_id)

    def _upload(self, name: str, document: str, version: str) -> Any:
        """Uploads a pipeline, or a new version of it; returns the version."""
        # The client's own method finds neither pipelines of a namespace nor pipelines
        # whose display name was changed.
        known = {"predicates": [{"operation": "EQUALS", "key": "name", "stringValue": name}]}
        found = self.client.list_pipelines(filter=json.dumps(known), namespace=self.namespace).pipelines
        # The client reads files only.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(document, encoding="utf-8")
            if found:
                return self.client.upload_pipeline_version(str(file), version, pipeline_id=found[0].pipeline_id)
            uploaded = self.client.upload_pipeline(str(file), name, namespace=self.namespace)
            return self.client.list_pipeline_versions(uploaded.pipeline_id).pipeline_versions[0]

    @contextlib.contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Silences the client's log, and turns its errors into `ConfigurationError`."""
        level = _RETRY_LOGGER.level
        _RETRY_LOGGER.setLevel(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except kfp_server_api.ApiException as error:
            if error.status in _UNAUTHORIZED:
                raise ConfigurationError(
                    f"--host: {self._host} does not let you in ({error.status}: {_get_message(error)}); see the options "
                    "--existing-token and --namespace"
                ) from error
            raise ConfigurationError(
                f"Kubeflow Pipelines at {self._host} refuses: {error.status}: {_get_message(error)}"
            ) from error
        except (urllib3.exceptions.HTTPError, google_errors.GoogleAuthError, OSError) as error:
            raise ConfigurationError(
                f"--host: Kubeflow Pipelines does not answer at {self._host} ({_get_cause(error)}); {_ADDRESS}"
            ) from error
        finally:
            _RETRY_LOGGER.setLevel(level)


def _get_message(error: Any) -> str:
    """Returns the message of an API's answer, on one line.

    Uploads have a different format from other requests, and proxies answer with pages.
    """
    body = (error.body or "").strip()
    try:
        document = json.loads(body)
        text = document.get("error_message") or document.get("message") or document.get("error")
    except (ValueError, AttributeError):
        text = None if body.startswith("<") else body
    return " ".join(str(text or error.reason or "").split())


def _get_cause(error: Exception) -> str:
    """Returns the innermost reason of a failed request, without names of objects."""
    # urllib3's errors have a `reason`; those of Google's libraries and requests have
    # args.
    below = getattr(error, "reason", None) or next(iter(error.args), None)
    return _get_cause(below) if isinstance(below, Exception) else re.sub(r"^(<[^>]*>|\w+\([^)]*\)): ", "", str(error))


def _to_schedule(recurring: Any) -> RemoteSchedule:
    trigger = recurring.trigger
    cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else ""
    return RemoteSchedule(
        id=recurring.recurring_run_id,
        name=recurring.display_name or recurring.recurring_run_id,
        state=str(recurring.status or "").lower(),
        cron=cron or "",
    )


def _to_run(run: Any) -> RemoteRun:
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
