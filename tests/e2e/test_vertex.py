"""Tests a pipeline on Vertex AI, from its file to the pushed model.

Vertex AI itself is a stand-in, its machines are processes, and its bucket is a folder;
the compiled document, the SDK that submits it, each task's command, the CustomJob, its
replicas' commands, TFX, Beam and TensorFlow are real.
"""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format
from running import wait_until
from vertex_api import VertexApi
from vertex_pipelines import Document, Run, VertexPipelines
from vertex_pools import Options

from tfx_distribute.pipelines.spec import loader
from tfx_distribute.pipelines.targets.vertex import client as vertex_client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
BUCKET = "gs://example-bucket"
START_SECONDS = 120.0  # for a step and its training processes to import their packages
STEPS_SECONDS = 600.0  # for all steps up to the one that trains, too


@dataclass
class Cloud:
    """A project on Vertex AI with a bucket, and an image with a folder's content."""

    folder: Path
    bucket: Path
    image: Path
    api: VertexApi
    pipelines: VertexPipelines
    command: Callable[..., Any]
    steps: list[int] = field(default_factory=list)  # processes, in the order of their start

    def compiled(self, example: str, *parameters: str, **changes: Any) -> Path:
        """Compiles an example with `tfx-distribute`; puts its file into the image."""
        shutil.copytree(EXAMPLES / example, self.image)
        # Of the documents.
        shown = yaml.safe_load((EXAMPLES / "digits" / "vertex.yaml").read_text())
        document = yaml.safe_load((self.image / "pipeline.yaml").read_text())
        document |= {name: shown[name] for name in ("push", "resources", "targets")}
        self.file.write_text(yaml.safe_dump(document | changes))
        # A process that was given GPUs does not train on the CPU unless it is told to.
        words = [word for parameter in ("accelerator_type=cpu", *parameters) for word in ("-p", parameter)]
        output = self.folder / f"{example}.json"
        done = self.command("compile", self.file, "--target", "vertex", "-o", output, *words)
        assert done.code == 0, done.output
        return output

    @property
    def file(self) -> Path:
        """Returns the pipeline file."""
        return self.image / "vertex.yaml"

    def submitted(self, compiled: Path, **arguments: Any) -> tuple[Document, str]:
        """Submits a pipeline; returns the service's document and its job's id."""
        target = loader.load(self.file).targets.vertex
        assert target is not None
        job = vertex_client.make_job(compiled.read_text(), target, arguments)
        with self.api.connected():
            name = vertex_client.VertexRuns(target.project, target.region).submit(job).id
        return json_format.MessageToDict(types.PipelineJob.pb(self.api.get(name))), name.rpartition("/")[2]

    @property
    def jobs(self) -> list[types.CustomJob]:
        """Returns the service's current documents of all CustomJobs."""
        return self.api.all("customJobs")

    def said(self, job: types.CustomJob, replica: str) -> list[Document]:
        """Returns the progress reports of a training process, from all its starts."""
        lines = self.api.printed(job.name, replica).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]

    def phases(self, job: types.CustomJob, replica: str) -> list[str]:
        """Returns the phases of a training process, from all of its starts."""
        return [report["phase"] for report in self.said(job, replica)]

    def left(self) -> list[str]:
        """Returns the command lines of the processes of this project."""
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended in the meantime
                lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line[:200] for line in lines if str(self.folder) in line]


@pytest.fixture
def cloud(tmp_path, command, forked) -> Iterator[Cloud]:
    bucket, tasks, jobs, temporary = (tmp_path / name for name in ("bucket", "tasks", "jobs", "tmp"))
    for folder in (bucket, tasks, jobs, temporary):
        folder.mkdir()
    image = tmp_path / "image"
    environment = {"PYTHONPATH": str(image), "TMPDIR": str(temporary)}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "2", "no_proxy": "127.0.0.1"}
    options = Options(environment=environment, grace=10.0)
    with VertexApi(jobs, options, project="example-project", location="europe-west4") as api:
        arguments = [api.address, api.project, api.location]
        connected = dict.fromkeys(("Trainer", "Tuner"), arguments)
        places = {BUCKET: f"file://{bucket}"}
        pipelines = VertexPipelines(tasks, places, environment, connected, forked=forked)
        project = Cloud(tmp_path, bucket, image, api, pipelines, command)
        pipelines.on_start = lambda task, process: project.steps.append(process.pid)
        yield project


def with_parameters(document: Document, **values: int | str) -> Document:
    """Returns the document with other values of its parameters."""
    config = document["runtimeConfig"]
    changed = {name: {"stringValue" if isinstance(value, str) else "intValue": value} for name, value in values.items()}
    return {**document, "runtimeConfig": {**config, "parameters": {**config["parameters"], **changed}}}


def model(run: Run) -> Document:
    metadata: Document = run.outputs["Trainer"]["model"]["metadata"]
    return metadata


def machines(job: types.CustomJob) -> list[tuple[int, str]]:
    return [(pool.replica_count, pool.machine_spec.machine_type) for pool in job.job_spec.worker_pool_specs]


def kill_step(cloud: Cloud, number: int) -> None:
    """Kills the step that created a job as soon as the job runs."""
    wait_until(lambda: len(cloud.jobs) > number and cloud.jobs[number].state.name == "JOB_STATE_RUNNING", STEPS_SECONDS)
    os.kill(cloud.steps[-1], signal.SIGKILL)


def kill_replica(cloud: Cloud, number: int, replica: str, step: int) -> None:
    """Kills a replica of a job after a training step."""
    wait_until(lambda: len(cloud.jobs) > number, START_SECONDS)
    job = cloud.jobs[number]
    wait_until(lambda: any(report["step"] > step for report in cloud.said(job, replica)), START_SECONDS)
    os.kill(cloud.api.pids(job.name)[replica], signal.SIGKILL)


def test_digits_on_worker_pools(cloud, forked_trainings):
    parameters = ("strategy=multi_worker_mirrored", "num_workers=2")
    compiled = cloud.compiled("digits", *parameters)
    document, job_id = cloud.submitted(compiled, epochs=12)
    assert document["pipelineSpec"] == json.loads(compiled.read_text())["pipelineSpec"]
    assert document["serviceAccount"] == "trainer@example-project.iam.gserviceaccount.com"
    cloud.pipelines.new_processes = ("Trainer",)
    first = cloud.pipelines.run(document, job_id)
    cloud.pipelines.new_processes = ()
    cloud.api.forked = forked_trainings
    check_first(cloud, first)

    # Two other trainings with the same data, each of which loses a process.
    parameters = {
        "strategy": "parameter_server",
        "num_workers": 1,
        "num_parameter_servers": 1,
        "epochs": 3,
    }
    with ThreadPoolExecutor(1) as fate:
        struck = fate.submit(kill_step, cloud, 1)
        second = cloud.pipelines.run(with_parameters(document, **parameters), f"{job_id}-2", first, {"Trainer"})
        struck.result()
    check_second(cloud, second)
    parameters = {"epochs": 20, "save_checkpoints_steps": 20, "heartbeat_timeout_secs": 5}
    with ThreadPoolExecutor(1) as fate:
        struck = fate.submit(kill_replica, cloud, 2, "workerpool1-0", 60)
        third = cloud.pipelines.run(with_parameters(document, **parameters), f"{job_id}-3", first, {"Trainer"})
        struck.result()
    assert model(third)["train_steps"] * 12 == model(first)["train_steps"] * 20
    check_third(cloud)


def check_first(cloud: Cloud, run: Run) -> None:
    """Checks the result of the whole pipeline."""
    assert run.tasks[-1] == "Pusher"
    (pushed,) = (cloud.bucket / "serving").glob("*/saved_model.pb")
    assert tf.saved_model.load(str(pushed.parent)).signatures["serving_default"]
    trained = model(run)
    assert (trained["strategy"], trained["num_replicas"], trained["num_workers"]) == ("multi_worker_mirrored", 2, 2)
    assert trained["training_val_accuracy"] > 0.9
    assert run.outputs["Evaluator"]["blessing"]["metadata"]["blessed"] == 1

    (job,) = cloud.jobs
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert machines(job) == [(1, "g2-standard-12"), (1, "g2-standard-12")]
    assert job.job_spec.scheduling.strategy.name == "SPOT"
    assert job.job_spec.service_account == "trainer@example-project.iam.gserviceaccount.com"
    pool = job.job_spec.worker_pool_specs[1]
    assert (pool.machine_spec.accelerator_type.name, pool.machine_spec.accelerator_count) == ("NVIDIA_L4", 1)
    assert (pool.disk_spec.boot_disk_size_gb, pool.container_spec.image_uri.rpartition("/")[2]) == (200, "digits:1-gpu")
    for replica in ("workerpool0-0", "workerpool1-0"):
        phases = cloud.phases(job, replica)
        assert (phases.count("start"), phases[-1]) == (1, "done"), cloud.api.printed(job.name, replica)
    log = run.logs["Trainer"]
    assert (
        f"created CustomJob {job.name}: https://console.cloud.google.com/vertex-ai/locations/europe-west4/training/" in log
    )
    assert f"CustomJob {job.name}: running" in log
    assert f"CustomJob {job.name}: succeeded" in log
    trainer = Path(run.outputs["Trainer"]["model"]["uri"].removeprefix("file://")).parent
    folders = (cloud.bucket / "pipelines" / "digits" / "checkpoints", *trainer.glob(".training/*/inputs"))
    assert [path for folder in folders for path in folder.rglob("*") if path.is_file()] == [], "what nobody needs any more"
    assert cloud.left() == [], "the processes of its pools"


def check_second(cloud: Cloud, run: Run) -> None:
    """Checks a training on parameter servers whose step was killed and retried."""
    assert (model(run)["strategy"], model(run)["num_parameter_servers"]) == ("parameter_server", 1)
    _, job = cloud.jobs
    assert machines(job) == [(1, "n2-highmem-4"), (1, "g2-standard-4"), (1, "n2-highmem-4")], "16 GiB beside the agents"
    assert cloud.phases(job, "workerpool0-0")[-1] == "done"
    assert cloud.phases(job, "workerpool2-0") == ["start", "serve"]
    assert f"CustomJob {job.name} of an earlier attempt: following it" in run.logs["Trainer"]
    assert cloud.left() == []


def check_third(cloud: Cloud) -> None:
    """Checks a training whose worker was killed and restarted by the service."""
    job = cloud.jobs[2]
    assert cloud.phases(job, "workerpool1-0").count("start") > 1
    steps = [
        report["step"] for report in cloud.said(job, "workerpool0-0") if report["message"].startswith("continues after")
    ]
    assert steps, cloud.api.printed(job.name)
    assert min(steps) >= 40, "it has lost what came after the last save, and no more"
    assert cloud.jobs[-1].state.name == "JOB_STATE_SUCCEEDED"
    assert cloud.left() == []


def test_trials_are_custom_jobs_and_outlive_their_step(cloud, forked_trainings):
    """Two trials at a time; the step of the search is killed and tried again."""
    cloud.api.forked = forked_trainings
    tune = {
        "objective": "val_accuracy",
        "max_trials": 3,
        "num_parallel_trials": 2,
        "epochs": 4,
        "space": {"learning_rate": {"values": [0.0001, 0.001, 0.01]}},
    }
    compiled = cloud.compiled("digits", "strategy=multi_worker_mirrored", "num_workers=2", tune=tune)
    document, job_id = cloud.submitted(compiled)
    steps = {"DigitsExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator", "Transform", "Sharder", "Tuner"}
    with ThreadPoolExecutor(1) as fate:
        struck = fate.submit(kill_step, cloud, 1)
        run = cloud.pipelines.run(document, job_id, only=steps)
        struck.result()
    assert len(cloud.jobs) == 3, "the second attempt follows the trials of the first"
    assert {job.state.name for job in cloud.jobs} == {"JOB_STATE_SUCCEEDED"}
    assert [machines(job) for job in cloud.jobs] == 3 * [[(1, "g2-standard-4"), (1, "g2-standard-4")]]
    log = run.logs["Tuner"]
    assert f"CustomJob {cloud.jobs[0].name} of an earlier attempt: following it" in log
    table = Path(run.outputs["Tuner"]["tuner_results"]["uri"].removeprefix("file://"))
    trials = [json.loads(line) for line in (table / "trials.jsonl").read_text().splitlines()]
    assert sorted(trial["hparams"]["learning_rate"] for trial in trials) == [0.0001, 0.001, 0.01]
    best = Path(run.outputs["Tuner"]["best_hyperparameters"]["uri"].removeprefix("file://"), "best_hyperparameters.txt")
    assert json.loads(best.read_text())["values"] == trials[0]["hparams"] == {"learning_rate": 0.01}
    assert len(list(table.glob("logs/trial-*/train/*"))) == 3
    checkpoints = cloud.bucket / "pipelines" / "digits" / "checkpoints"
    assert [path for path in checkpoints.rglob("*") if path.is_file()] == []
    assert cloud.left() == []


def test_files_are_looked_at_before_they_are_read(cloud):
    """The service runs the driver of TFX's ExampleGen before the step itself."""
    data = {"csv": f"{BUCKET}/data", "splits": {"train": 2, "eval": 1}}
    document = json.loads(cloud.compiled("taxi", data=data).read_text())
    simple = Path(tf.__file__).parents[1] / "tfx/examples/chicago_taxi_pipeline/data/simple"
    shutil.copytree(simple, cloud.bucket / "data")
    cloud.pipelines.new_processes = ("CsvExampleGen",)
    run = cloud.pipelines.run(document, "taxi-1", only={"CsvExampleGen"})
    examples = run.outputs["CsvExampleGen"]["examples"]
    assert "num_files:1," in examples["metadata"]["input_fingerprint"]
    assert json.loads(examples["metadata"]["split_names"]) == ["eval", "train"]
    assert list(Path(examples["uri"].removeprefix("file://")).glob("Split-train/*.gz"))


def test_a_scheduled_run_reads_the_last_day_that_had_ended(cloud):
    """However late it starts; and runs without a schedule, that or the newest."""
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        (cloud.bucket / "data" / day).mkdir(parents=True)
        (cloud.bucket / "data" / day / "data.csv").write_text("x,label\n1,0\n2,1\n3,0\n4,1\n")
    compiled = cloud.compiled("taxi", data={"csv": f"{BUCKET}/data/{{YYYY}}-{{MM}}-{{DD}}"})
    spans = []
    for span, at in (("scheduled", "2026-11-03T00:30:00Z"), ("scheduled", "2026-11-02T01:00:00Z"), ("", "")):
        document, job = cloud.submitted(compiled, span=span)
        run = cloud.pipelines.run(document, job, only=["CsvExampleGen"], scheduled_at=at)
        spans.append(run.outputs["CsvExampleGen"]["examples"]["metadata"]["spans"])
    assert spans == ["2026-11-02", "2026-11-01", "2026-11-03"]
