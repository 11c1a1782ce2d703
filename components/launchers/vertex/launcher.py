"""Runs a training as a CustomJob of Vertex AI. Imports no client of Google Cloud.

A machine's role follows from the position of its worker pool in the list: chief,
workers, parameter servers or reduction servers. Source:
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from absl import logging

from tfx_distribute.components import timeouts
from tfx_distribute.components.launchers.launcher import Failure, Launcher, LauncherSettings, Request, State, Training
from tfx_distribute.trainer_module.job import strategy_info
from tfx_distribute.trainer_module.job.cluster import (
    ERROR_FILE_VARIABLE,
    PARAMETER_SERVER,
    REQUESTED_GPUS,
    ClusterTask,
    replicas_of_roles,
    uses_accelerators,
)
from tfx_distribute.trainer_module.liveness import exit_codes

if TYPE_CHECKING:
    from google.cloud.aiplatform_v1.types import CustomJob

    from tfx_distribute.components.launchers.vertex.custom_jobs import CustomJobs

SUCCEEDED = ("succeeded", "partially_succeeded")
ENDED = (*SUCCEEDED, "failed", "cancelled", "expired")
TRAINING_LABEL = "tfx-distribute-training"  # by which another attempt of a step finds its job
# How the service reports a replica that failed. If a signal ended it, the number is
# that of the signal in some cases, with the signal's name behind it.
_EXIT_CODE = re.compile(r"non-zero status of (\d+)(\(SIG\w+\))?")


@dataclass(frozen=True, kw_only=True)
class VertexTrainingSettings(LauncherSettings):
    """Settings of training on Vertex AI: templates of jobs and of their worker pools.

    WorkerPoolSpec and CustomJob are messages of version 1 of its API, as JSON values.

    Attributes:
      project: Google Cloud project.
      location: Region of the project.
      worker: WorkerPoolSpec of each training process. The launcher adds command,
        variables and number of replicas.
      parameter_server: The same of each parameter server, and of a chief that only
        coordinates.
      reduction_server: WorkerPoolSpec of reduction servers, if `all_reduce` asks for
        them.
      job: CustomJob of each training. The launcher adds its name, label and pools.
      start_timeout_seconds: No limit: the service has its own.
    """

    project: str
    location: str
    worker: Mapping[str, Any]
    parameter_server: Mapping[str, Any]
    reduction_server: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    training: Literal["auto", "step", "elsewhere"] = "auto"
    start_timeout_seconds: float = 0.0

    LAUNCHER = "vertex"


class VertexLauncher(Launcher[VertexTrainingSettings]):
    """Runs a training as a CustomJob of Vertex AI."""

    Settings = VertexTrainingSettings
    poll_seconds = 10.0

    def __init__(self, settings: VertexTrainingSettings):
        super().__init__(settings)
        self._jobs: CustomJobs | None = None
        self._job: CustomJob | None = None
        self._failed_at = 0.0  # when it was first seen to have failed without an error

    def request(self, training: Training) -> Request:
        """Makes a CustomJob of the API, version 1, as JSON values."""
        folder = training.job_address.rpartition("/")[0]
        job = self.settings.job
        spec = {
            **job.get("job_spec", {}),
            "worker_pool_specs": _make_pools(training, self.settings, f"{folder}/error.json"),
        }
        if "tensorboard" in spec:  # it reads the logs from a folder below
            spec["base_output_directory"] = {"output_uri_prefix": folder}
        labels = {**job.get("labels", {}), TRAINING_LABEL: training.name}
        return {**job, "display_name": training.name, "labels": labels, "job_spec": spec}

    def start(self, request: Request, has_result: bool) -> bool:
        """Creates a job, or takes over an unfinished one; see `Launcher`."""
        from tfx_distribute.components.launchers.vertex.custom_jobs import CustomJobs

        self._jobs = self._jobs or CustomJobs(self.settings.project, self.settings.location, request)
        self._job, self._failed_at = self._jobs.find_unfinished(), 0.0
        while self._job and state_of(self._job) == "cancelling":
            time.sleep(self.poll_seconds)
            self._job = self._jobs.find_unfinished()
        words = "CustomJob %s of an earlier attempt: following it: %s"
        if not self._job and not has_result:
            self._job, words = self._jobs.create(), "created CustomJob %s: %s"
        if self._job:
            logging.info(words, self._job.name, self._jobs.address_of(self._job.name))
        return self._job is not None

    def state(self) -> State:
        """Asks for the state of the job, and for a process's report of its failure."""
        assert self._jobs, "start comes first"
        assert self._job, "start comes first"
        job = self._job = self._jobs.get(self._job.name)
        words, where = f"CustomJob {job.name}: {state_of(job)}", f"its logs: {self._jobs.address_of(job.name)}"
        if state_of(job) in SUCCEEDED:
            return State("succeeded", words)
        if report := self._jobs.read_report():
            self._jobs.cancel(job.name, has_time=True)  # the service would restart the process, and then the job
            return State("failed", words, Failure(f"CustomJob {job.name} failed: {report.message}\n{where}", is_final=True))
        if state_of(job) not in ENDED:
            return State("running" if state_of(job) == "running" else "queued", words)
        if state_of(job) == "failed" and not job.error.message:
            self._failed_at = self._failed_at or time.monotonic()
            if time.monotonic() - self._failed_at < timeouts.VERTEX_ERROR_SECONDS:
                return State("running", f"{words}; waiting for the reason")
        message = f"{words}: {job.error.message or 'no reason is given'}\n{where}"
        return State("failed", words, Failure(message, is_final=not _may_retry(job)))

    def stop(self, has_time: bool) -> None:
        """Cancels the job; see `Launcher`."""
        if self._jobs and self._job:
            self._jobs.cancel(self._job.name, has_time)


def state_of(job: "CustomJob") -> str:
    """Returns the state of a job, such as `running` or one of `ENDED`."""
    return str(job.state.name.removeprefix("JOB_STATE_").lower())


def _may_retry(job: "CustomJob") -> bool:
    """Returns True if another job may succeed where this one failed.

    A failure without an exit code is one of the service, such as a lack of machines: it
    may pass. A process of ours that fails for good reports it.
    """
    code = _EXIT_CODE.search(job.error.message)
    is_final = code is not None and not code[2] and exit_codes.is_final(int(code[1]))
    return state_of(job) == "failed" and not is_final


def _make_pools(training: Training, settings: VertexTrainingSettings, error_file: str) -> list[dict[str, Any]]:
    distribution = training.distribution

    def pool(template: Mapping[str, Any], count: int) -> dict[str, Any]:
        machine, container = template["machine_spec"], template["container_spec"]
        has_gpus = machine.get("accelerator_type", "").startswith("NVIDIA")
        gpus = {REQUESTED_GPUS: str(machine["accelerator_count"])} if has_gpus else {}
        variables = {each["name"]: each["value"] for each in container.get("env", ())}
        variables |= {**training.environment, ERROR_FILE_VARIABLE: error_file, **gpus}
        container = {
            **container,
            "command": ["python", "-m", "tfx_distribute.trainer_module", "--job", training.job_address],
            "env": [{"name": key, "value": value} for key, value in sorted(variables.items())],
        }
        return {**template, "machine_spec": dict(machine), "replica_count": count, "container_spec": container}

    pools = {}
    for role, count in replicas_of_roles(distribution).items():
        with_accelerators = uses_accelerators(distribution, ClusterTask(role, 0))
        pools[role] = pool(settings.worker if with_accelerators else settings.parameter_server, count)
    if distribution.all_reduce == strategy_info.REDUCTION_SERVER:
        pools[PARAMETER_SERVER] = dict(settings.reduction_server)
    return list(pools.values())  # each at its position: who has servers has workers
