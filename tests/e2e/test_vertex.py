"""From a pipeline file to a pushed model, through every piece that runs on Vertex AI.

Vertex AI itself is a stand-in, its machines are processes, and a folder is its bucket; the compiled document, the SDK that
submits it, each task's command, the CustomJob, its replicas' commands, TFX, Beam and TensorFlow are real.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from running import wait_until
from vertex_api import VertexApi
from vertex_pipelines import Run, VertexPipelines
from vertex_pools import Options

from tfx_distribute.pipelines import loader, vertex_client

# Every task of every run is a process that imports TFX.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
BUCKET = "gs://example-bucket"
MODULE = "tfx_distribute.trainer_module"


@dataclass
class Cloud:
    """A project on Vertex AI, with a bucket."""

    folder: Path
    bucket: Path
    api: VertexApi
    pipelines: VertexPipelines

    def submitted(self, file: Path, compiled: Path, **arguments: Any) -> tuple[dict, str]:
        """A pipeline that the SDK has submitted: the document that the service has received, and the job's id."""
        target = loader.load(file).targets.vertex
        asked = vertex_client.Run(file.parent.name, compiled.read_text(), arguments)
        with self.api.connected():
            name = vertex_client.Pipelines(target).submit(asked).name
        return json_format.MessageToDict(types.PipelineJob.pb(self.api.get(name))), name.rpartition("/")[2]

    @property
    def jobs(self) -> list[types.CustomJob]:
        """All CustomJobs, as the service knows them now."""
        return self.api.all("customJobs")

    def said(self, job: types.CustomJob, replica: str) -> list[dict]:
        """What a training process has reported, all of its starts together."""
        lines = self.api.printed(job.name, replica).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]

    def left(self) -> list[str]:
        """Command lines of processes that have to do with it."""
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:  # it has ended meanwhile
                continue
        return [line[:200] for line in lines if str(self.folder) in line]


@pytest.fixture
def cloud(tmp_path, monkeypatch) -> Iterator[Cloud]:
    bucket, tasks, jobs = (tmp_path / name for name in ("bucket", "tasks", "jobs"))
    for folder in (bucket, tasks, jobs):
        folder.mkdir()
    image = {"PYTHONPATH": str(tmp_path / "digits"), "TF_CPP_MIN_LOG_LEVEL": "2", "no_proxy": "127.0.0.1"}
    options = Options(environment=image, grace=10.0)
    with VertexApi(jobs, options, project="example-project", location="europe-west4") as api:
        words = {"Trainer": [api.url, api.project, api.location]}
        places = {BUCKET: f"file://{bucket}"}
        yield Cloud(tmp_path, bucket, api, VertexPipelines(tasks, places, api.number, api.location, image, words))


def asked_for(document: Mapping[str, Any], **values: int | str) -> dict:
    """The document with other values of its parameters."""
    config = document["runtimeConfig"]
    given = {name: {"stringValue" if isinstance(value, str) else "intValue": value} for name, value in values.items()}
    return {**document, "runtimeConfig": {**config, "parameters": {**config["parameters"], **given}}}


def model(run: Run) -> dict:
    return run.outputs["Trainer"]["model"]["metadata"]


def replicas(job: types.CustomJob) -> list[int]:
    return [pool.replica_count for pool in job.job_spec.worker_pool_specs]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def kill_past(cloud: Cloud, number: int, replica: str, step: int) -> int:
    """Kills a replica of a job that is still to come when it is past a training step; returns which process it was."""
    wait_until(lambda: len(cloud.jobs) > number, 120)
    job = cloud.jobs[number]
    wait_until(lambda: any(told["step"] > step for told in cloud.said(job, replica)), 120)
    pid = cloud.api.pids(job.name)[replica]
    os.kill(pid, signal.SIGKILL)
    return pid


def test_digits_on_worker_pools_of_a_custom_job(cloud, command):
    file = cloud.folder / "digits" / "vertex.yaml"
    shutil.copytree(EXAMPLES / "digits", file.parent)
    words = ("strategy=multi_worker_mirrored", "num_workers=2", "num_evaluators=1", "accelerator_type=cpu")
    compiled = cloud.folder / "digits.json"
    parameters = [word for each in words for word in ("-p", each)]
    began = time.monotonic()
    done = command("compile", file, "--target", "vertex", "-o", compiled, *parameters)
    print("compiled", time.monotonic() - began)
    assert done.code == 0, done.output
    document, job_id = cloud.submitted(file, compiled, epochs=15)
    assert document["serviceAccount"] == "trainer@example-project.iam.gserviceaccount.com"

    print("submitted", time.monotonic() - began)
    run = cloud.pipelines.run(document, job_id)
    print("ran", time.monotonic() - began)
    assert run.tasks[-1] == "Pusher"
    (pushed,) = (cloud.bucket / "serving").glob("*/saved_model.pb")
    assert tf.saved_model.load(str(pushed.parent)).signatures["serving_default"]
    assert (model(run)["strategy"], model(run)["num_replicas"], model(run)["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    assert model(run)["training_val_accuracy"] > 0.9, "of the evaluator, which is a process of its own"
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1

    (job,) = cloud.jobs
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert replicas(job) == [1, 1, 0, 1]
    pools = [pool for pool in job.job_spec.worker_pool_specs if pool.replica_count]
    for pool in pools:
        machine = pool.machine_spec
        assert (machine.machine_type, machine.accelerator_type.name, machine.accelerator_count) == (
            "g2-standard-24",
            "NVIDIA_L4",
            2,
        )
        assert pool.disk_spec.boot_disk_size_gb == 200
        assert pool.container_spec.image_uri.endswith("/digits:1-gpu")
    assert job.job_spec.scheduling.strategy.name == "SPOT"
    for replica in ("workerpool0-0", "workerpool1-0"):
        phases = [told["phase"] for told in cloud.said(job, replica)]
        assert (phases.count("start"), phases[-1]) == (1, "done"), cloud.api.printed(job.name, replica)
    evaluated = cloud.said(job, "workerpool3-0")
    assert evaluated[0]["phase"] == "start"
    assert (evaluated[-1]["phase"], evaluated[-1]["step"]) == ("evaluate", 15), "the last epoch"
    print(evaluated[:2])
    assert "Traceback" not in cloud.api.printed(job.name, "workerpool3-0")
    log = run.logs["Trainer"]
    assert (
        f"created CustomJob {job.name}: https://console.cloud.google.com/vertex-ai/locations/europe-west4/training/" in log
    )
    assert f"CustomJob {job.name}: succeeded" in log
    assert files(cloud.bucket / "pipelines" / "digits" / "checkpoints") == []
    assert cloud.left() == [], "the pools' processes are gone"

    asked = {"strategy": "parameter_server", "num_workers": 1, "num_parameter_servers": 1, "num_evaluators": 0, "epochs": 5}
    other = cloud.pipelines.run(asked_for(document, **asked), f"{job_id}-2", run, {"Trainer"})
    print("ps", time.monotonic() - began)
    assert (model(other)["strategy"], model(other)["num_parameter_servers"]) == ("parameter_server", 1)
    assert replicas(cloud.jobs[1]) == [1, 1, 1]
    assert [pool.machine_spec.machine_type for pool in cloud.jobs[1].job_spec.worker_pool_specs] == [
        "n2-standard-4",
        "g2-standard-24",
        "n2-standard-4",
    ]
    assert cloud.left() == []

    asked = {"num_evaluators": 0, "epochs": 40, "save_checkpoints_steps": 50, "heartbeat_timeout_secs": 3}
    with ThreadPoolExecutor(1) as fate:
        struck = fate.submit(kill_past, cloud, 2, "workerpool1-0", 100)
        third = cloud.pipelines.run(asked_for(document, **asked), f"{job_id}-3", run, {"Trainer"})
        assert struck.result()
    print("kill", time.monotonic() - began)
    for j in cloud.jobs[2:]:
        for r in ("workerpool0-0", "workerpool1-0"):
            print(cloud.api.printed(j.name, r))
    print(third.logs["Trainer"][-3000:])
    assert model(third)["num_workers"] == 2
    assert model(third)["train_steps"] == 40 * 23
    assert cloud.left() == []
